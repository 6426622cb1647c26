"""Leases: renewed whenever their holder acts. Their expiry takes effect at once, as that of a deadline does; the next
write or the reaper records it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import OperationalError
from django.db.models import Q

from coordination.services import workspaces
from handoffs import notices
from handoffs.config import HandoffSettings
from handoffs.models import Handoff, HandoffStatus
from handoffs.transitions import UNCLAIMED, record, work
from nexus.core.clock import iso, now
from nexus.core.database.prepared import Select, Slot, Update
from nexus.core.database.store import store, write

SHORTEST, LONGEST = 10, 86_400  # seconds that one may ask for

_running = Select(
    lambda: (
        Handoff.objects.held()
        .filter(claimed_by=Slot("agent_id"), lease_expires_at__gte=Slot("moment"))
        .values_list("pk", "lease_seconds", "lease_expires_at")
    )
)
_renew = Update(  # not where it ended, lapsed or was extended since it was read
    lambda: Handoff.objects.filter(pk=Slot("handoff_id"), claimed_by=Slot("agent_id"), lease_expires_at=Slot("read")),
    lease_expires_at=Slot("until"),
)


def seconds(*asked: int | None) -> int:
    """Return how long a claim lasts: as requested, else as the setting says."""
    return next(filter(None, asked), HandoffSettings.current().handoff_lease_ttl_seconds)


def renew(agent_id: str, moment: datetime) -> None:
    """Renew an agent's running claims that have less than half of their lease left, from now. Call it inside the
    transaction of an act.

    No event records it: one for each heartbeat would flood the log, and the lease itself can be read.
    """
    for handoff_id, asked, until in _running(agent_id=agent_id, moment=moment):
        lease = timedelta(seconds=seconds(asked))
        if until is not None and until - moment < lease / 2:
            _renew(handoff_id=handoff_id, agent_id=agent_id, read=until, until=moment + lease)


AT_ONCE = 50  # lapsed ones, and overdue ones, that a transaction records

_due = Select(
    lambda: Handoff.objects.filter(
        Q(lease_expires_at__lt=Slot("moment")) | Q(status=HandoffStatus.OPEN, deadline_at__lt=Slot("moment")),
        workspace_id=Slot("workspace_id"),
    ).values_list("pk")
)
_overdue = Select(
    lambda: Handoff.objects.open().filter(workspace_id=Slot("workspace_id"), deadline_at__lt=Slot("moment"))
)
_time_out = Update(
    lambda: Handoff.objects.open().filter(pk=Slot("handoff_id"), deadline_at__lt=Slot("moment")),
    status=HandoffStatus.EXPIRED,
    updated_at=Slot("moment"),
)


def expire(workspace_id: str) -> None:
    """Record the expiries of a workspace, one event each: handoffs whose lease expired open again, and open ones whose
    deadline has passed expire. A transaction holds AT_ONCE of them at most, so that other writers come in between."""
    while _record_some(workspace_id):
        pass


def _record_some(workspace_id: str) -> bool:
    """Record up to AT_ONCE expiries; return whether there were any. A plain read decides first, so that a call without
    expiries does not take the writer's lock."""
    if _due.first(workspace_id=workspace_id, moment=now()) is None:
        return False
    with write():
        moment = now()
        for handoff in Handoff.objects.lapsed(moment).filter(workspace_id=workspace_id)[:AT_ONCE]:
            _reopen(handoff, moment)
        for handoff in _overdue(AT_ONCE, workspace_id=workspace_id, moment=moment):
            if _time_out(handoff_id=handoff.handoff_id, moment=moment):
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
