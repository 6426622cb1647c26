"""Leases: renewed whenever their holder acts. Their expiry takes effect at once, as that of a deadline does; the next
write or the reaper records it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import OperationalError

from coordination.services import workspaces
from handoffs import notices, sql
from handoffs.config import HandoffSettings
from handoffs.models import Handoff, HandoffStatus
from handoffs.transitions import UNCLAIMED, record, work
from nexus.core.clock import iso, now
from nexus.core.database.store import store, write

SHORTEST, LONGEST = 10, 86_400  # seconds that one may ask for


def seconds(*asked: int | None) -> int:
    """Return how long a claim lasts: as requested, else as the setting says."""
    return next(filter(None, asked), HandoffSettings.current().handoff_lease_ttl_seconds)


def renew(agent_id: str, moment: datetime) -> None:
    """Renew an agent's running claims that have less than half of their lease left, from now. Call it inside the
    transaction of an act.

    No event records it: one for each heartbeat would flood the log, and the lease itself can be read.
    """
    for handoff_id, asked, until in sql.running(agent_id=agent_id, moment=moment):
        lease = timedelta(seconds=seconds(asked))
        if until - moment < lease / 2:
            sql.renew(handoff_id=handoff_id, agent_id=agent_id, read=until, until=moment + lease)


AT_ONCE = 50  # lapsed ones, and overdue ones, that a transaction records


def expire(workspace_id: str) -> None:
    """Record the expiries of a workspace, one event each: handoffs whose lease expired open again, and open ones whose
    deadline has passed expire. A transaction holds AT_ONCE of them at most, so that other writers come in between."""
    while _record_some(workspace_id):
        pass


def _record_some(workspace_id: str) -> bool:
    """Record up to AT_ONCE expiries; return whether there were any. A plain read decides first, so that a call without
    expiries does not take the writer's lock."""
    if not sql.due(workspace_id=workspace_id, moment=now()):
        return False
    with write():
        moment = now()
        for handoff in Handoff.objects.lapsed(moment).filter(workspace_id=workspace_id)[:AT_ONCE]:
            _reopen(handoff, moment)
        overdue = Handoff.objects.open().filter(workspace_id=workspace_id, deadline_at__lt=moment)
        for handoff in overdue[:AT_ONCE]:
            if overdue.filter(pk=handoff.pk).update(status=HandoffStatus.EXPIRED, updated_at=moment):
                record(handoff, "timed_out", None, moment)
                notices.timed_out(handoff, moment)
    return True


def _reopen(handoff: Handoff, moment: datetime) -> None:
    """Reopen a handoff whose lease expired, unless it was renewed meanwhile. Call it inside a transaction."""
    former, lapsed_at = handoff.claimed_by, handoff.lease_expires_at
    lapsed = Handoff.objects.lapsed(moment).filter(pk=handoff.pk)
    if not lapsed.update(status=HandoffStatus.OPEN, updated_at=moment, **UNCLAIMED):
        return
    record(handoff, "expired", None, moment, claimed_by=former, lapsed_at=iso(lapsed_at))
    if handoff.task_key is not None:
        work().returned(handoff.task_key, workspaces.directory_of(handoff.workspace), former, None, moment)


def record_expiries(workspace_id: str) -> None:
    """Run `expire` from a read: not while a writer holds the store, and only some of many. The read shows the current
    states in any case."""
    with store().without_waiting():
        try:
            _record_some(workspace_id)
        except OperationalError:
            return  # whoever writes next records it


def expire_everywhere() -> None:
    """Run `expire` in every workspace. A reaper calls it in the background."""
    moment = now()
    overdue = Handoff.objects.open().filter(deadline_at__lt=moment)
    due = (Handoff.objects.lapsed(moment), overdue)
    for workspace_id in {found for rows in due for found in rows.values_list("workspace_id", flat=True)}:
        expire(workspace_id)
