"""Metrics: agents by presence, and the figures that the apps measure, summed up over a window and counted once for
histograms."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING

from nexus.core.apps import nexus_apps
from nexus.core.clock import now
from nexus.core.contributions import Window

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from nexus.core.contributions import Figure, Sample


MOST = 3_000  # the newest samples, from which a summary is made
AT_ONCE = 1_000_000  # samples that a histogram reads at once
LATE = timedelta(minutes=10)  # a change may be committed this long after its own time and is still counted


@dataclass(frozen=True)
class Summary:
    """Statistics of some values. A percentile is the least value that at least this share of them does not exceed."""

    count: int
    sum: float
    median: float
    p90: float
    p99: float
    max: float


@dataclass(frozen=True)
class Measured:
    """A figure over a window: in total, by agent and by kind, those with most samples first. `bars` counts the samples
    in each bucket; the last bucket is above all bounds."""

    figure: Figure
    all: Summary | None
    by_agent: dict[str, Summary]
    by_kind: dict[str, Summary]
    bars: list[int]
    cut: bool  # there were more than the newest MOST


def collect() -> Iterator[Metric]:
    """Count the agents by presence, as the commands and the dashboard do."""
    from coordination.presence import Presence, agent_states  # models, which need the settings
    from nexus.core.contributions import gauge

    counted = Counter(state.presence.value for state in agent_states(now()))
    yield gauge("nexus_agents", "Agents by presence: any act of an agent counts.", "presence", counted, Presence)


def all_figures() -> list[Figure]:
    """Return the figures of all apps."""
    return [figure for app in nexus_apps() for figure in app.figures()]


def measured(
    since: datetime, until: datetime, *, agent_id: str | None = None, workspace_id: str | None = None
) -> list[Measured]:
    """Return every figure over a window, of all agents or of one, in all workspaces or in one."""
    window = Window(since, until, MOST + 1, agent_id, workspace_id)
    return [_measured(figure, window) for figure in all_figures()]


def _measured(figure: Figure, window: Window) -> Measured:
    newest = figure.samples(window)
    samples = newest[:MOST]
    by_agent: dict[str, list[float]] = defaultdict(list)
    by_kind: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        by_kind[sample.kind].append(sample.value)
        if sample.agent_id is not None:
            by_agent[sample.agent_id].append(sample.value)
    ordered = sorted(sample.value for sample in samples)
    beyond = [bisect_right(ordered, bound) for bound in figure.bounds]  # the index of the first sample above each bound
    return Measured(
        figure,
        summary(ordered),
        _summaries(by_agent),
        _summaries(by_kind),
        [end - start for start, end in pairwise([0, *beyond, len(ordered)])],
        len(newest) > MOST,
    )


def _summaries(groups: dict[str, list[float]]) -> dict[str, Summary]:
    found = {name: made for name, values in groups.items() if (made := summary(values))}
    return dict(sorted(found.items(), key=lambda item: (-item[1].count, item[0])))


def summary(values: Iterable[float]) -> Summary | None:
    """Return the statistics of some values; None where there are none."""
    ordered = sorted(values)
    if not ordered:
        return None

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Summary(len(ordered), round(math.fsum(ordered), 6), rank(0.5), rank(0.9), rank(0.99), ordered[-1])


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
                samples = figure.samples(Window(since, moment + LATE, AT_ONCE))
                if self._looked is not None:
                    for sample in samples:
                        if sample.key not in seen:
                            histogram.add(sample)
                self._seen[figure.name] = {sample.key for sample in samples}
            self._looked = moment
            return list(self._histograms.values())
