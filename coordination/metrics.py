"""Metrics: agents by presence, and histograms of what the apps measure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING

from nexus.core.apps import nexus_apps
from nexus.core.clock import now
from nexus.core.contributions import SampleWindow

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from nexus.core.contributions import Figure, Sample


AT_ONCE = 1_000_000  # samples that a histogram reads at once
LATE = timedelta(minutes=10)  # a change may be committed this long after its own time and is still counted


def collect() -> Iterator[Metric]:
    """Count the agents by presence, as the commands and the dashboard do."""
    from coordination.presence import Presence, agent_states  # models, which need the settings
    from nexus.core.contributions import gauge

    counted = Counter(state.presence.value for state in agent_states(now()))
    yield gauge("nexus_agents", "Agents by presence: any act of an agent counts.", "presence", counted, Presence)


def all_figures() -> list[Figure]:
    """Return the figures of all apps."""
    return [figure for app in nexus_apps() for figure in app.figures()]


@dataclass
class Histogram:
    """Counts per bucket and the sum of samples, by kind, since this process's first scan."""

    figure: Figure
    counted: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, sample: Sample) -> None:
        kind = sample.kind if sample.kind in self.figure.kinds else "other"
        self.counted[kind][bisect_left(self.figure.bounds, sample.value)] += 1
        self.sums[kind] += sample.value

    def buckets(self, kind: str) -> Iterator[tuple[float, int]]:
        """Yield each upper bound with the number of samples of a kind that do not exceed it."""
        total = 0
        for index, bound in enumerate((*self.figure.bounds, math.inf)):
            total += self.counted[kind][index]
            yield bound, total


class Histograms:
    """Counts each sample once that any process wrote since the first scan.

    The counts are kept in memory and start anew with the process, as Prometheus expects of a counter. Each scan
    begins some time before the last one, because what was written then may have been committed since; the key of a
    sample tells whether it was counted already.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._looked: datetime | None = None
        self._seen: dict[str, set[str]] = {}
        self._histograms: dict[str, Histogram] = {}

    def look(self, moment: datetime) -> Sequence[Histogram]:
        """Scan the store and return the histograms."""
        with self._lock:
            since = (self._looked or moment) - LATE
            for figure in all_figures():
                histogram = self._histograms.setdefault(figure.name, Histogram(figure))
                seen = self._seen.get(figure.name, set())
                samples = figure.samples(SampleWindow(since, moment + LATE, AT_ONCE))
                if self._looked is not None:
                    for sample in samples:
                        if sample.key not in seen:
                            histogram.add(sample)
                self._seen[figure.name] = {sample.key for sample in samples}
            self._looked = moment
            return list(self._histograms.values())
