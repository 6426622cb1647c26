"""Claims that last as long as their holder is heard of."""

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
    """How long a claim lasts: the first length that was asked for, or else what the setting says."""
    return next(filter(None, asked), HandoffSettings.current().handoff_lease_ttl_seconds)


def renew(agent_id: str, moment: datetime) -> None:
    """Inside the transaction of an act: the agent's claims that still run, and have less than half of their lease left,
    run a whole lease from now.

    No event tells of it: one for each heartbeat of each agent would bury the log, and whoever looks sees the lease.
    """
    if not HandoffSettings.current().handoff_renew_leases:
        return
    for handoff_id, asked, until in _running(agent_id=agent_id, moment=moment):
        lease = timedelta(seconds=seconds(asked))
        if until is not None and until - moment < lease / 2:
            _renew(handoff_id=handoff_id, agent_id=agent_id, read=until, until=moment + lease)
