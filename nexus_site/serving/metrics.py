"""What /metrics tells, in Prometheus' text format: calls as they happen, the rest when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from coordination.figures import Histograms
from core.apps import nexus_apps
from core.clock import now
from core.database import store
from core.metrics import gauge
from core.operations import runner
from core.operations.registry import Toolset
from core.operations.replies import Outcome
from core.turns import when_refused

OURS = CollectorRegistry()
CALLS = Counter("nexus_calls", "Calls per operation and outcome.", ["toolset", "operation", "outcome"], registry=OURS)
SECONDS = Histogram(
    "nexus_call_seconds", "How long calls took, waits included.", ["toolset", "operation"], registry=OURS
)
REFUSED = Counter(
    "nexus_refused_requests", "Requests refused because as many of their caller's waited already.", registry=OURS
)
when_refused.append(REFUSED.inc)
WAITING = Gauge("nexus_waiting_requests", "Requests that wait for their turn now.", registry=OURS)
PARKED = Gauge("nexus_parked_waits", "Waits that hold nothing but memory now.", registry=OURS)


def observe_calls() -> None:
    """Count every call of this process from here on."""
    runner.observers.append(_observe)


def _observe(toolset: Toolset, name: str, outcome: Outcome, seconds: float) -> None:
    operation = name if name in toolset.operations else "unknown"  # a client must not make up label values
    CALLS.labels(toolset.name, operation, outcome.error.code.value if outcome.error else "ok").inc()
    SECONDS.labels(toolset.name, operation).observe(seconds)


class Store(Collector):
    """What the store holds now, as every app tells it."""

    def collect(self) -> Iterator[Metric]:
        for app in nexus_apps():
            yield from app.metrics()
        yield gauge("nexus_database_bytes", "Size of the store.", "file", {"database": store().size_on_disk()})


class Figures(Collector):
    """How well it goes, as every app measures it: histograms of what any process wrote since this one was first asked,
    each a series from the start for every kind that there may be."""

    def __init__(self) -> None:
        self._histograms = Histograms()

    def collect(self) -> Iterator[Metric]:
        for histogram in self._histograms.look(now()):
            figure = histogram.figure
            family = HistogramMetricFamily(f"nexus_{figure.name}", figure.what, labels=["kind"])
            for kind in dict.fromkeys((*figure.kinds, *histogram.counted)):
                buckets = [(_bound(bound), count) for bound, count in histogram.buckets(kind)]
                family.add_metric([kind], buckets, sum_value=histogram.sums[kind])
            yield family


def _bound(bound: float) -> str:
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # as the library's own histograms have it


OURS.register(Store())
OURS.register(Figures())


def exposition() -> bytes:
    """The whole text; reads the store."""
    return generate_latest(OURS)
