"""The life of a handoff: total functions over plain values.

OPEN ──claim──▶ CLAIMED ──complete (claimant)──▶ COMPLETED
OPEN ◀─lease lapses─┘ └──reject (claimant)──▶ REJECTED
OPEN ──reject (direct target)──▶ REJECTED
OPEN ──cancel (creator)──▶ CANCELLED
"""

from __future__ import annotations

from datetime import datetime

from coordination.routing import Strategy, Target
from core.operations.errors import Code, NexusError


def lapsed(*, lease_expires_at: datetime | None, now: datetime) -> bool:
    """Whether a claim has run out, strictly before `now`, so that the handoff counts as open again."""
    return lease_expires_at is not None and lease_expires_at < now


def check_complete(*, status: str, claimed_by: str | None, agent_id: str) -> None:
    """Only the claimant completes, and only what is claimed. Raises INVALID_TRANSITION, then NOT_OWNER."""
    if status != "CLAIMED":
        raise _invalid_transition("complete", status)
    if claimed_by != agent_id:
        raise _not_owner("Only its claimant may complete a handoff.")


def check_reject(*, status: str, claimed_by: str | None, target: Target, agent_id: str) -> None:
    """The claimant rejects what is claimed, a direct target what is open. Raises INVALID_TRANSITION or NOT_OWNER."""
    if status == "CLAIMED":
        if claimed_by != agent_id:
            raise _not_owner("Only its claimant may reject a claimed handoff.")
    elif status == "OPEN":
        if target["strategy"] != Strategy.DIRECT or target["agent_id"] != agent_id:
            raise _not_owner("Only the agent of a direct target may reject an open handoff.")
    else:
        raise _invalid_transition("reject", status)


def check_cancel(*, status: str, created_by: str, agent_id: str) -> None:
    """The creator retracts what is still open. Raises NOT_OWNER, then INVALID_TRANSITION."""
    if created_by != agent_id:
        raise _not_owner("Only its creator may cancel a handoff.")
    if status != "OPEN":
        raise _invalid_transition("cancel", status)


def _invalid_transition(verb: str, status: str) -> NexusError:
    hint = " It is its claimant's to resolve, until the lease lapses." if status == "CLAIMED" else ""
    return NexusError(Code.INVALID_TRANSITION, f"Cannot {verb} a handoff that is {status}.{hint}", {"status": status})


def _not_owner(message: str) -> NexusError:
    return NexusError(Code.NOT_OWNER, message)
