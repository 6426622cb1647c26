"""What /metrics tells of the inbox."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count, Min, QuerySet
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from core.clock import now
from core.metrics import gauge
from inbox.models import Delivery, DeliveryStatus


def collect() -> Iterator[Metric]:
    """Deliveries by lane, a lapsed lease counted as unread as everywhere, and the age of the oldest unread one."""
    lapsed = Delivery.objects.lapsed(now())
    lanes = dict(Delivery.objects.values_list("status").annotate(Count("pk")).order_by())
    waiting_again = lapsed.count()
    lanes["delivered"] = lanes.get("delivered", 0) - waiting_again
    lanes["unread"] = lanes.get("unread", 0) + waiting_again
    yield gauge("nexus_inbox_deliveries", "Deliveries by lane.", "lane", lanes, DeliveryStatus.values)
    age = max(_age(Delivery.objects.unread()), _age(lapsed))
    yield GaugeMetricFamily("nexus_oldest_unread_seconds", "Age of the oldest unread delivery.", value=age)


def _age(deliveries: QuerySet[Delivery]) -> float:
    oldest = deliveries.aggregate(at=Min("created_at"))["at"]
    return (now() - oldest).total_seconds() if oldest else 0.0
