"""The transaction of a step on a handoff, and the steps of its holder between claim and completion: start, block,
extend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from coordination.services import agents, workspaces
from handoffs import leases, lifecycle, remarks, selectors, sql
from handoffs.leases import expire
from handoffs.models import HELD, Handoff
from handoffs.notices import notify
from handoffs.transitions import By, changed_meanwhile, find_handoff, record, refresh_plan
from handoffs.verification import require_text
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.size_limits import within_limit


@contextmanager
def on_handoff(
    handoff_id: str, by: By, *, reason: str | None = None, expires: bool = True, moves_task: bool = False
) -> Iterator[Handoff]:
    """Open the transaction of a step on a handoff of the agent's project, or on any handoff for an operator.

    Expiries are recorded before it, unless a step that comes too late still counts (`expires`). The plan is read before
    a step that `moves_task`. Raises WORKSPACE_UNRESOLVED, CONTENT_TOO_LARGE for the `reason` of the step, NOT_FOUND,
    WORKSPACE_MISMATCH.
    """
    if by.operator:
        project = workspaces.directory_of(selectors.get_handoff(handoff_id).workspace)
    else:
        project = workspaces.locate(by.project_root)
    within_limit(reason, "reason")
    if expires:
        expire(project.workspace_id)
    if moves_task:
        refresh_plan(project, handoff_id)
    with write(*(() if by.operator else (project.workspace_id, by.agent_id))):
        yield find_handoff(project.workspace_id, handoff_id)
        if not by.operator:
            agents.touch(by.agent_id, now())


def next_status(verb: str, handoff: Handoff, by: By, moment: datetime) -> str:
    """Return the status that a verb leads to. Raises STALE_CLAIM, INVALID_TRANSITION, NOT_OWNER."""
    if by.operator:
        return lifecycle.step(verb, handoff.status, {lifecycle.Party.OPERATOR})
    return remarks.step(verb, handoff, by.agent_id, moment, by.claim_epoch)


def start(handoff_id: str, by: By) -> Handoff:
    """Mark a handoff that the agent holds as in progress, also after a block. Repeating it changes nothing.

    Raises WORKSPACE_UNRESOLVED, NOT_FOUND, WORKSPACE_MISMATCH, STALE_CLAIM, INVALID_TRANSITION, NOT_OWNER.
    """
    with on_handoff(handoff_id, by) as handoff:
        moment = now()
        if _apply(handoff, "start", by, None, moment):
            record(handoff, "started", by.agent_id, moment)
    return _with_lease(handoff)


def block(handoff_id: str, by: By, reason: str) -> tuple[Handoff, list[str]]:
    """Mark a handoff that the agent holds as blocked, with the reason; notify its creator and return whom the notice
    reached.

    The lease is kept; `start` continues. Repeating it with the same reason changes nothing. Raises as `start` does,
    CONTENT_TOO_LARGE, and VALIDATION_ERROR for a blank reason.
    """
    require_text(reason, "reason")
    notified: list[str] = []
    with on_handoff(handoff_id, by) as handoff:
        moment = now()
        if _apply(handoff, "block", by, reason, moment):
            record(handoff, "blocked", by.agent_id, moment, reason=reason)
            body = f"{by.agent_id} cannot go on: {reason}\n\nIt keeps the handoff; answer it with message_create."
            notified = notify(handoff, handoff.from_agent_id, "is blocked", body, moment, by=by.agent_id)
    return _with_lease(handoff), notified


def _with_lease(handoff: Handoff) -> Handoff:
    """Return a handoff with its lease, which an act of its holder may have renewed."""
    handoff.refresh_from_db(fields=["lease_expires_at"])
    return handoff


def _apply(handoff: Handoff, verb: str, by: By, reason: str | None, moment: datetime) -> bool:
    """Apply a verb while the lease runs; return whether the state, or the reason of the block, changed."""
    former = handoff.status
    handoff = selectors.with_current_status(handoff, moment)
    status = next_status(verb, handoff, by, moment)
    if (former, handoff.blocked_reason) == (status, reason):
        return False
    of = {"handoff_id": handoff.handoff_id, "former": former, "claimed_by": by.agent_id, "moment": moment}
    of["claim_epoch"] = handoff.claim_epoch
    if not sql.move(**of, status=status, blocked_reason=reason):
        raise changed_meanwhile()
    handoff.status, handoff.blocked_reason = status, reason
    return True


def extend(handoff_id: str, by: By, seconds: int | None) -> Handoff:
    """Extend a lease to `seconds` from now, by default to as long as was requested at the claim; it never becomes
    shorter.

    Raises as `start` does.
    """
    with on_handoff(handoff_id, by) as handoff:
        moment = now()
        handoff = selectors.with_current_status(handoff, moment)
        next_status("extend", handoff, by, moment)
        read = handoff.lease_expires_at
        assert read is not None, "what is held has a lease"
        until = max(read, moment + timedelta(seconds=leases.seconds(seconds, handoff.lease_seconds)))
        unchanged = Handoff.objects.filter(pk=handoff.pk, status__in=HELD, lease_expires_at=read)
        if not unchanged.update(lease_expires_at=until, updated_at=moment):
            raise changed_meanwhile()
        handoff.lease_expires_at = until
        record(handoff, "extended", by.actor, moment, lease_expires_at=iso(until), **by.event_fields)
    return handoff
