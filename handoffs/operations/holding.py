"""Operations of a holder: claim, start, block, extend, complete; and verdicts, rejection and cancellation."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from coordination.guards import in_session
from coordination.toolset import operation
from handoffs import progress, services
from handoffs.errors import HandoffCode
from handoffs.leases import LONGEST, SHORTEST
from handoffs.models import HandoffStatus
from handoffs.operations.common import (
    OF_ONE,
    SETTLING,
    HandoffTrusted,
    HeldHandoff,
    SettledHandoff,
    Stretch,
    held_handoff,
    outcome,
)
from handoffs.rows import HandoffState
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Shown
from nexus.core.operations.schemas import Time


class HandoffClaim(HandoffTrusted):
    lease_seconds: Annotated[int | None, Field(ge=SHORTEST, le=LONGEST, description="How long it lasts unrenewed.")] = (
        None
    )


class ClaimedHandoff(TypedDict):
    handoff_id: str
    workspace_id: str
    status: HandoffState
    claimed_by: str | None
    lease_expires_at: Time | None
    payload: str | None


@operation(
    HandoffClaim,
    *OF_ONE,
    Code.INVALID_TRANSITION,
    HandoffCode.NOT_ELIGIBLE_TO_CLAIM,
    HandoffCode.HANDOFF_ALREADY_CLAIMED,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
)
def handoff_claim(p: HandoffClaim, caller: Caller) -> ClaimedHandoff:
    """Take a handoff; one agent wins. Your heartbeats and acts renew the lease; once it lapses, others may take it."""
    handoff = services.claim(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, lease_seconds=p.lease_seconds
    )
    return {
        "handoff_id": handoff.handoff_id,
        "workspace_id": handoff.workspace_id,
        "status": handoff.status,
        "claimed_by": handoff.claimed_by,
        "lease_expires_at": iso(handoff.lease_expires_at),
        "payload": handoff.payload,
    }


class HandoffComplete(HandoffTrusted):
    result: Annotated[
        Any, Shown({"type": "string"}), Field(description="The outcome: a string, or any JSON kept as its text.")
    ] = None


@operation(
    HandoffComplete,
    *SETTLING,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
)
def handoff_complete(p: HandoffComplete, caller: Caller) -> SettledHandoff:
    """Finish a handoff you claimed; result goes to its creator, or first to its verifier (SUBMITTED)."""
    ended = services.complete(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, result=p.result
    )
    return outcome(p.handoff_id, ended.status, ended.notified)


@operation(
    HandoffTrusted,
    *OF_ONE,
    Code.INVALID_TRANSITION,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
    idempotent=True,
)
def handoff_start(p: HandoffTrusted, caller: Caller) -> HeldHandoff:
    """Say that you work on a handoff you claimed, or go on after handoff_block."""
    return held_handoff(progress.start(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id))


class HandoffBlock(HandoffTrusted):
    reason: str


@operation(HandoffBlock, *SETTLING, acts_as="agent_id", guards=(in_session("session_id"),), idempotent=True)
def handoff_block(p: HandoffBlock, caller: Caller) -> HeldHandoff:
    """Say why you cannot go on; its creator is told, you keep it."""
    handoff, notified = progress.block(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, reason=p.reason
    )
    return held_handoff(handoff, notified)


class HandoffExtend(HandoffTrusted):
    seconds: Stretch = None


@operation(HandoffExtend, *OF_ONE, Code.INVALID_TRANSITION, acts_as="agent_id", guards=(in_session("session_id"),))
def handoff_extend(p: HandoffExtend, caller: Caller) -> HeldHandoff:
    """Keep a handoff for a stretch in which nothing is heard of you."""
    return held_handoff(
        progress.extend(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, seconds=p.seconds)
    )


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
