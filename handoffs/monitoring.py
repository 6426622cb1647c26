"""The reads behind the operators' board."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.db.models import Count, QuerySet

from coordination.models import Workspace
from handoffs.models import Handoff, HandoffStatus


def column(statuses: Sequence[str], limit: int, *, workspace_id: str | None = None) -> list[Handoff]:
    """Return the newest handoffs in some states."""
    rows = Handoff.objects.filter(status__in=statuses)
    if workspace_id:
        rows = rows.filter(workspace_id=workspace_id)
    return list(rows.select_related("workspace").defer("payload", "result").order_by("-created_event_id")[:limit])


def counts(statuses: Collection[str] = HandoffStatus.values, *, workspace_id: str | None = None) -> dict[str, int]:
    """Count the handoffs in each of these states."""
    places = Workspace.objects.filter(pk=workspace_id) if workspace_id else Workspace.objects.all()
    rows = Handoff.objects.filter(workspace__in=places.values("pk"), status__in=statuses)  # by their index
    counted = dict(rows.values_list("status").annotate(Count("status")).order_by())
    return {status: counted.get(status, 0) for status in statuses}


def live(*, workspace_id: str | None = None, limit: int = 500) -> list[Handoff]:
    """Return the handoffs that are not settled, oldest first, with their state and the agents involved."""
    rows = Handoff.objects.live().only("title", "status", "from_agent_id", "claimed_by")
    if workspace_id:
        rows = rows.filter(workspace_id=workspace_id)
    return list(rows.order_by("created_event_id")[:limit])


def offered_by(agent_id: str, limit: int) -> list[Handoff]:
    """Return the unsettled handoffs that an agent created, oldest first."""
    here = Workspace.objects.values("pk")  # by their index, and not through all that was ever settled
    rows = Handoff.objects.live().filter(from_agent_id=agent_id, workspace__in=here)
    return list(rows.only("title", "status", "claimed_by", "target").order_by("created_event_id")[:limit])


def waiting(moment: datetime, limit: int) -> list[Handoff]:
    """Return the open handoffs, oldest first."""
    return list(
        Handoff.objects.in_state(HandoffStatus.OPEN, moment).defer("payload").order_by("created_event_id")[:limit]
    )


def expiring(moment: datetime, within: timedelta) -> QuerySet[Handoff]:
    """Return claimed handoffs whose lease ends soon or has ended, soonest first."""
    ending = Handoff.objects.held().filter(lease_expires_at__lte=moment + within)
    return ending.select_related("workspace").defer("payload").order_by("lease_expires_at")
