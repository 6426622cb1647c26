"""Parameters, rows and error lists that the operations of handoffs share."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.parameters import IN_WORKSPACE, ProjectRoot, SessionId, SessionSecret
from handoffs import remarks
from handoffs.leases import LONGEST, SHORTEST
from handoffs.models import Handoff
from handoffs.rows import HandoffState, RemarkRow, remark_row
from nexus.core.clock import iso
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Params
from nexus.core.operations.schemas import Time

DEFAULT_LIMIT, MAX_LIMIT = 100, 500  # of a list
OF_ONE = (*IN_WORKSPACE, Code.NOT_FOUND, CoordinationCode.WORKSPACE_MISMATCH, Code.NOT_OWNER)
SETTLING = (*OF_ONE, Code.CONTENT_TOO_LARGE, Code.INVALID_TRANSITION)

Stretch = Annotated[int | None, Field(ge=SHORTEST, le=LONGEST, description="From now; none: a whole lease.")]


class HandoffRef(Params):
    project_root: ProjectRoot
    handoff_id: Id
    agent_id: Id


class HandoffTrusted(HandoffRef):
    session_id: SessionId = None
    session_secret: SessionSecret = None


class SettledHandoff(TypedDict):
    handoff_id: str
    status: HandoffState
    notified: NotRequired[Annotated[list[str], Field(description="Whose inbox has the outcome.")]]


def outcome(handoff_id: str, status: str, notified: list[str]) -> SettledHandoff:
    settled: SettledHandoff = {"handoff_id": handoff_id, "status": str(status)}
    if notified:
        settled["notified"] = notified
    return settled


class HeldHandoff(TypedDict):
    handoff_id: str
    status: HandoffState
    lease_expires_at: Time | None
    notified: NotRequired[list[str]]


def held_handoff(handoff: Handoff, notified: list[str] | None = None) -> HeldHandoff:
    held: HeldHandoff = {
        "handoff_id": handoff.handoff_id,
        "status": str(handoff.status),
        "lease_expires_at": iso(handoff.lease_expires_at),
    }
    if notified:
        held["notified"] = notified
    return held


def remarks_of(handoff: Handoff) -> list[RemarkRow]:
    return [remark_row(remark) for remark in remarks.of(handoff)]
