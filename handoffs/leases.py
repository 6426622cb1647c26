"""Renewal of leases whenever their holder acts."""

from __future__ import annotations

from datetime import datetime, timedelta

from handoffs.config import HandoffSettings
from handoffs.models import Handoff
from nexus.core.database.prepared import Select, Slot, Update

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
    if not HandoffSettings.current().handoff_renew_leases:
        return
    for handoff_id, asked, until in _running(agent_id=agent_id, moment=moment):
        lease = timedelta(seconds=seconds(asked))
        if until is not None and until - moment < lease / 2:
            _renew(handoff_id=handoff_id, agent_id=agent_id, read=until, until=moment + lease)
