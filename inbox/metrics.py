"""What /metrics shows of the inbox."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Min
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from inbox.models import Delivery, DeliveryQuerySet, DeliveryStatus
from nexus.core.clock import now
from nexus.core.metrics import gauge

COUNTED = 100_000  # deliveries of a lane; a database counts by reading them


def collect() -> Iterator[Metric]:
    """Count deliveries by lane (an expired lease counts as unread) and give the age of the oldest unread one."""
    moment = now()
    deliveries = Delivery.objects.all()
    lapsed = deliveries.lapsed(moment).order_by("lease_expires_at")[:COUNTED]
    lanes = {lane: _count(deliveries.filter(status=lane)) for lane in ("unread", "parked", "read")}
    lanes["delivered"] = _count(deliveries.leased(moment))
    lanes["unread"] = min(lanes["unread"] + lapsed.count(), COUNTED)
    yield gauge("nexus_inbox_deliveries", f"Deliveries by lane, up to {COUNTED}.", "lane", lanes, DeliveryStatus.values)
    oldest = [rows.aggregate(at=Min("created_at"))["at"] for rows in (deliveries.unread(), lapsed)]
    age = max(((moment - at).total_seconds() for at in oldest if at), default=0.0)
    yield GaugeMetricFamily("nexus_oldest_unread_seconds", "Age of the oldest unread delivery.", value=age)


def _count(deliveries: DeliveryQuerySet) -> int:
    return deliveries[:COUNTED].count()
