"""Operations that end a handoff other than by completing it: verdicts, rejection, cancellation."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coordination.guards import in_session
from coordination.toolset import operation
from handoffs import progress, services
from handoffs.models import HandoffStatus
from handoffs.operations.common import OF_ONE, SETTLING, HandoffTrusted, SettledHandoff, outcome
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code


@operation(HandoffTrusted, *OF_ONE, Code.INVALID_TRANSITION, acts_as="agent_id", guards=(in_session("session_id"),))
def handoff_accept(p: HandoffTrusted, caller: Caller) -> SettledHandoff:
    """As its verifier: a submitted result counts."""
    notified = progress.accept(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id)
    return outcome(p.handoff_id, HandoffStatus.COMPLETED, notified)


class HandoffReturn(HandoffTrusted):
    reasons: str


@operation(HandoffReturn, *SETTLING, acts_as="agent_id", guards=(in_session("session_id"),))
def handoff_return(p: HandoffReturn, caller: Caller) -> SettledHandoff:
    """As its verifier: it does not count yet; who did it has it again."""
    notified = progress.send_back(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, reasons=p.reasons
    )
    return outcome(p.handoff_id, HandoffStatus.CLAIMED, notified)


class HandoffWithReason(HandoffTrusted):
    reason: Annotated[str | None, Field(description="Why, for the record and the creator.")] = None


@operation(
    HandoffWithReason,
    *SETTLING,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
    destructive=True,
)
def handoff_reject(p: HandoffWithReason, caller: Caller) -> SettledHandoff:
    """Refuse, for good, a handoff you claimed, or an open one whose direct target you are."""
    notified = services.reject(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, reason=p.reason
    )
    return outcome(p.handoff_id, HandoffStatus.REJECTED, notified)


@operation(
    HandoffWithReason,
    *SETTLING,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
    destructive=True,
)
def handoff_cancel(p: HandoffWithReason, caller: Caller) -> SettledHandoff:
    """Retract an open handoff you created."""
    services.cancel(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, reason=p.reason)
    return outcome(p.handoff_id, HandoffStatus.CANCELLED, [])
