"""What /metrics tells, in Prometheus' text format: calls as they happen, the rest when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.db.models import Count, Min, QuerySet
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from coordination import runner
from coordination.clock import now
from coordination.operation import REGISTRY
from handoffs.models import Handoff, HandoffStatus
from inbox.models import Delivery, DeliveryStatus

OURS = CollectorRegistry()
CALLS = Counter("nexus_calls", "Calls per operation and outcome.", ["operation", "outcome"], registry=OURS)
SECONDS = Histogram("nexus_call_seconds", "How long calls took, waits included.", ["operation"], registry=OURS)
PARKED = Gauge("nexus_parked_waits", "Waits that hold nothing but memory now.", registry=OURS)


def observe_calls() -> None:
    """Count every call of this process from here on."""
    runner.observers.append(_observe)


def _observe(name: str, envelope: Mapping[str, Any], seconds: float) -> None:
    operation = name if name in REGISTRY else "unknown"  # a client must not make up label values
    CALLS.labels(operation, "ok" if envelope["ok"] else envelope["error"]["code"]).inc()
    SECONDS.labels(operation).observe(seconds)


class Store(Collector):
    """What the store holds now."""

    def collect(self) -> Iterator[Metric]:
        lapsed = Delivery.objects.lapsed(now())
        lanes = dict(Delivery.objects.values_list("status").annotate(Count("pk")).order_by())
        waiting_again = lapsed.count()  # a lapsed lease reads as unread, here as everywhere
        lanes["delivered"] = lanes.get("delivered", 0) - waiting_again
        lanes["unread"] = lanes.get("unread", 0) + waiting_again
        yield _family("nexus_inbox_deliveries", "Deliveries by lane.", "lane", lanes, DeliveryStatus.values)

        live = [HandoffStatus.OPEN, HandoffStatus.CLAIMED]
        handoffs = dict(Handoff.objects.filter(status__in=live).values_list("status").annotate(Count("pk")).order_by())
        yield _family("nexus_handoffs", "Handoffs that are not finished.", "status", handoffs, live)

        age = max(_age(Delivery.objects.unread()), _age(lapsed))
        yield GaugeMetricFamily("nexus_oldest_unread_seconds", "Age of the oldest unread delivery.", value=age)

        store = settings.NEXUS.database
        files = {"database": store, "wal": store.with_name(f"{store.name}-wal")}
        sizes = {name: path.stat().st_size for name, path in files.items() if path.exists()}
        yield _family("nexus_database_bytes", "Size of the store's files.", "file", sizes, list(files))


OURS.register(Store())


def exposition() -> bytes:
    """The whole text; reads the store."""
    return generate_latest(OURS)


def _family(name: str, help: str, label: str, values: Mapping[str, int], known: list[Any]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, help, labels=[label])
    for value in known:
        family.add_metric([str(value)], values.get(value, 0))
    return family


def _age(deliveries: QuerySet[Delivery]) -> float:
    oldest = deliveries.aggregate(at=Min("created_at"))["at"]
    return (now() - oldest).total_seconds() if oldest else 0.0
