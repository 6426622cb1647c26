"""Metrics of mail: the time until a message is acknowledged, how often it was delivered again, what /metrics shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db.models import Min, Q, QuerySet, TextField
from django.db.models.functions import Cast
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from coordination.models import Agent
from coordination.routing import Strategy, stored_strategy
from inbox.models import Delivery, DeliveryQuerySet, DeliveryStatus
from nexus.core.clock import now
from nexus.core.contributions import Figure, Sample, SampleWindow, gauge
from nexus.core.database.functions import Lasted

COUNTED = 100_000  # deliveries of a status; a database counts by reading them


def collect() -> Iterator[Metric]:
    """Count deliveries by status (an expired lease counts as unread) and give the age of the oldest unread one."""
    moment = now()
    deliveries = Delivery.objects.all()
    lapsed = deliveries.lapsed(moment).order_by("lease_expires_at")[:COUNTED]
    statuses = {status: _count(deliveries.filter(status=status)) for status in ("unread", "parked", "read")}
    statuses["delivered"] = _count(deliveries.leased(moment))
    statuses["unread"] = min(statuses["unread"] + lapsed.count(), COUNTED)
    yield gauge(
        "nexus_inbox_deliveries", f"Deliveries by status, up to {COUNTED}.", "lane", statuses, DeliveryStatus.values
    )
    oldest = [rows.aggregate(at=Min("created_at"))["at"] for rows in (deliveries.unread(), lapsed)]
    age = max(((moment - at).total_seconds() for at in oldest if at), default=0.0)
    yield GaugeMetricFamily("nexus_oldest_unread_seconds", "Age of the oldest unread delivery.", value=age)


def _count(deliveries: DeliveryQuerySet) -> int:
    return deliveries[:COUNTED].count()


# Messages take no target that opens with time.
KINDS = tuple(strategy.value for strategy in Strategy if strategy is not Strategy.DIRECT_WITH_FALLBACK)


_TARGET = Cast("message__target", TextField())


def _kind(target: str | None) -> str:
    return Strategy.BROADCAST.value if target is None else stored_strategy(target)


def _read(window: SampleWindow) -> QuerySet[Delivery]:
    """Return the deliveries that were acknowledged within a window, latest first."""
    rows = Delivery.objects.filter(status=DeliveryStatus.READ, read_at__gte=window.since, read_at__lt=window.until)
    return rows.order_by("-read_at")


def _acknowledged(window: SampleWindow) -> list[Sample]:
    """Sample the time from sending to acknowledgement."""
    took = Lasted("created_at", "read_at")
    found = _read(window).values_list("pk", _TARGET, took)[: window.limit]
    return [Sample(pk, _kind(target), max(0.0, round(took, 3))) for pk, target, took in found]


def _redelivered(window: SampleWindow) -> list[Sample]:
    """Sample how often each acknowledged or parked delivery was delivered again."""
    columns = ("pk", _TARGET, "attempts")
    parked = Delivery.objects.filter(  # by the agents' inboxes: no index has when it was
        Q(delivered_at__gte=window.since, delivered_at__lt=window.until),
        recipient__in=Agent.everyone.values("pk"),
        status=DeliveryStatus.PARKED,
    )
    found = [
        *_read(window).values_list(*columns)[: window.limit],
        *parked.order_by("-delivery_id").values_list(*columns)[: window.limit],
    ]
    return [Sample(pk, _kind(target), max(0, attempts - 1)) for pk, target, attempts in found[: window.limit]]


FIGURES: Sequence[Figure] = (
    Figure(
        "mail_ack_seconds",
        "From when a message is sent until its recipient acknowledges it, by how it was addressed.",
        KINDS,
        (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400, 86_400),
        _acknowledged,
    ),
    Figure(
        "mail_redeliveries",
        "How often a message was handed out again before it was acknowledged or parked, by how it was addressed.",
        KINDS,
        (0, 1, 2, 3, 4, 5, 10),
        _redelivered,
    ),
)
