"""Metrics of handoffs: the time until the first claim and until completion, and what /metrics shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db.models import Count, DateTimeField, Exists, OuterRef, Subquery, TextField
from django.db.models.functions import Cast
from prometheus_client.metrics_core import Metric

from coordination.log.selectors import ids_within
from coordination.models import Event, Workspace
from coordination.routing import Strategy, stored_strategy
from handoffs.models import LIVE, Handoff, HandoffStatus
from nexus.core.contributions import Figure, Sample, SampleWindow, gauge
from nexus.core.database.functions import Lasted


def collect() -> Iterator[Metric]:
    """Count the handoffs that are not settled, by status."""
    counted = dict(Handoff.objects.live().values_list("status").annotate(Count("pk")).order_by())
    yield gauge("nexus_handoffs", "Handoffs that are not finished.", "status", counted, LIVE)


def _claimed(window: SampleWindow) -> list[Sample]:
    """Sample the time from creation to the first claim, for first claims within the window."""
    first, beyond = ids_within(window.since, window.until)
    claims = Event.objects.filter(type="handoff.claimed")
    earlier = claims.filter(handoff_id=OuterRef("handoff_id"), event_id__lt=OuterRef("event_id"))
    handoff = Handoff.objects.filter(pk=OuterRef("handoff_id"))
    created = Subquery(handoff.values("created_at"), output_field=DateTimeField())
    found = (
        claims.filter(~Exists(earlier), Exists(handoff), event_id__gte=first, event_id__lt=beyond)
        .annotate(about=Cast(Subquery(handoff.values("target")), TextField()))
        .annotate(waited=Lasted(created, "created_at"))
        .order_by("-event_id")
        .values_list("event_id", "about", "waited")[: window.limit]
    )
    return [Sample(str(event_id), stored_strategy(target), _length(waited)) for event_id, target, waited in found]


def _done(window: SampleWindow) -> list[Sample]:
    """Sample the time from creation to completion or acceptance within the window."""
    done = Handoff.objects.filter(
        workspace__in=Workspace.objects.values("pk"),
        status=HandoffStatus.COMPLETED,
        updated_at__gte=window.since,
        updated_at__lt=window.until,
    )
    newest = done.order_by("-updated_at").values("pk")[: window.limit]  # by their index alone: only these rows are read
    took = Lasted("created_at", "updated_at")
    rows = Handoff.objects.filter(pk__in=newest).order_by("-updated_at")
    found = rows.values_list("pk", Cast("target", TextField()), took)
    return [Sample(pk, stored_strategy(target), _length(took)) for pk, target, took in found]


def _length(seconds: float) -> float:
    return max(0.0, round(seconds, 3))


KINDS = tuple(strategy.value for strategy in Strategy)
BOUNDS = (1, 5, 15, 60, 300, 900, 1800, 3600, 14_400, 43_200, 86_400, 604_800)

FIGURES: Sequence[Figure] = (
    Figure(
        "handoff_claim_seconds",
        "From when a handoff is created until an agent first claims it, by whom it is for.",
        KINDS,
        BOUNDS,
        _claimed,
    ),
    Figure(
        "handoff_done_seconds",
        "From when a handoff is created until it is completed, by whom it is for.",
        KINDS,
        BOUNDS,
        _done,
    ),
)
