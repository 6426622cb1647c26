"""Operations that only clients of okto-nexus know; lists of tools do not have them."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field

from coordination.parameters import in_session
from coordination.toolset import operation
from handoffs import verdicts
from handoffs.operations import STEP, HandoffStep
from handoffs.rows import HandoffRow, handoff_row
from handoffs.selectors import get_handoff
from nexus.core.clock import now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, invalid

NOTHING_SAID = "The verifier gave no feedback."  # which 0.3.1 allows; a return has reasons here


class HandoffVerify(HandoffStep):
    verdict: Literal["pass", "fail"]
    feedback: Annotated[str | None, Field(max_length=2000, description="For whoever did it; only with fail.")] = None


class VerifiedHandoff(HandoffRow):
    verified_by: NotRequired[str]
    verification_feedback: NotRequired[str]
    notified: NotRequired[list[str]]


@operation(
    HandoffVerify,
    *STEP,
    Code.CONTENT_TOO_LARGE,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    advertised=False,
)
def handoff_verify(p: HandoffVerify, caller: Caller) -> VerifiedHandoff:
    """For clients of okto-nexus: handoff_accept with the verdict pass, handoff_return with fail."""
    if p.verdict == "pass" and p.feedback is not None:
        raise invalid("feedback goes with the verdict fail.", field="feedback")
    if p.verdict == "pass":
        notified = verdicts.accept(p.handoff_id, p.by)
    else:
        feedback = p.feedback if p.feedback and p.feedback.strip() else NOTHING_SAID
        notified = verdicts.send_back(p.handoff_id, p.by, feedback)
    data: VerifiedHandoff = {**handoff_row(get_handoff(p.handoff_id), now())}  # type: ignore[typeddict-item]  # added below
    if p.verdict == "pass":
        data["verified_by"] = p.agent_id
    elif p.feedback is not None:
        data["verification_feedback"] = p.feedback
    if notified:
        data["notified"] = notified
    return data
