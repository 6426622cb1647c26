"""The content of /metrics in Prometheus' text format: calls are counted as they happen, the rest is read for each
request."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from coordination.metrics import Histograms
from nexus.core import waiting
from nexus.core.apps import nexus_apps
from nexus.core.clock import now
from nexus.core.contributions import gauge
from nexus.core.database.store import store
from nexus.core.fairness import call_slots, when_refused
from nexus.core.operations import dispatch
from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import Outcome

HERE = CollectorRegistry()  # metrics of this process
OURS = CollectorRegistry()
CALLS = Counter("nexus_calls", "Calls per operation and outcome.", ["toolset", "operation", "outcome"], registry=HERE)
SECONDS = Histogram(
    "nexus_call_seconds", "How long calls took, waits included.", ["toolset", "operation"], registry=HERE
)
REFUSED = Counter(
    "nexus_refused_requests", "Requests refused because as many of their caller's waited already.", registry=HERE
)
when_refused.append(REFUSED.inc)
WAITING = Gauge("nexus_waiting_requests", "Requests that wait for a slot now.", registry=HERE)
PARKED = Gauge("nexus_parked_waits", "Waits that hold nothing but memory now.", registry=HERE)


# A cache for the series: the library's own search by labels takes several times as long.
_calls, _seconds = cache(CALLS.labels), cache(SECONDS.labels)


def observe_calls() -> None:
    """Count every call of this process from now on."""
    dispatch.called.connect(count_call)


def count_call(sender: Toolset, name: str, outcome: Outcome, seconds: float, **_: object) -> None:
    """Count a call; a receiver of `dispatch.called`."""
    # `contents` does not import the operations
    known = name in sender.contents.operations or name in sender.operations
    operation = name if known else "unknown"  # a client must not make up label values
    _calls(sender.name, operation, outcome.error.code.value if outcome.error else "ok").inc()
    _seconds(sender.name, operation).observe(seconds)


class StoreCollector(Collector):
    """Metrics of the store's content, from every app."""

    def collect(self) -> Iterator[Metric]:
        for app in nexus_apps():
            yield from app.metrics()
        yield gauge("nexus_database_bytes", "Size of the store.", "file", {"database": store().size_on_disk()})


class Figures(Collector):
    """The figures of every app: histograms of what any process wrote since this one was first asked. Each kind is a
    series from the start."""

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


for each in (HERE, StoreCollector(), Figures()):
    OURS.register(each)


def update_metrics() -> None:
    """Update the metrics of the moment. Call it on the event loop."""
    PARKED.set(len(waiting.waiter().parked))
    WAITING.set(call_slots().all_waiting)


def exposition() -> bytes:
    """Return the whole text; reads the store."""
    return generate_latest(OURS)
