"""Spans of time for a chart: the longest are listed, the others counted by when they begin, and the number of spans at
once. Total functions over plain values: SQLite would sort all of them for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import NamedTuple, TypeVar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Of = TypeVar("Of")
Timed = tuple[Of, str, float, float | None]  # whose, its key, from when to when (None: still) in seconds since 1970


class ChartWindow(NamedTuple):
    """The time of a chart in seconds since 1970: its start, the moment that spans may outlast, and the length of a
    cell."""

    since: float
    still: float
    cell: float

    def ended(self, end: float | None) -> datetime | None:
        """Return when a span ended; None if it outlasts the window."""
        return None if end is None or end > self.still else moment(end)


def longest_and_counts(
    spans: Iterable[Timed[Of]], window: ChartWindow, most: int
) -> tuple[list[Timed[Of]], Counter[tuple[Of, int]]]:
    """Return the spans of a window that last at least half a cell, the longest first, at most `most`; and the number
    of all others by owner and by the cell that they begin in, numbered since 1970."""
    since, still, cell = window
    long: list[tuple[float, Timed[Of]]] = []
    short: list[tuple[Of, float]] = []
    for span in spans:
        of, _, start, end = span
        begun = start if start > since else since
        lasted = (still if end is None or end > still else end) - begun
        if lasted >= cell / 2:
            long.append((lasted, span))
        else:
            short.append((of, begun // cell))
    long.sort(key=lambda each: each[0], reverse=True)
    short += [(of, max(start, since) // cell) for _, (of, _, start, _) in long[most:]]
    counted = Counter({(of, int(number)): many for (of, number), many in Counter(short).items()})
    return [span for _, span in long[:most]], counted


def at_once(spans: Iterable[tuple[float, float]], parts: int) -> list[float]:
    """Return how many spans there were at once, on average, in each of so many equal parts of a time.

    A span is given by its start and end in parts, from 0 to the number of parts.
    """
    within = [0.0] * (parts + 1)  # of spans that begin or end in it, by how much each is there
    after = [0] * (parts + 2)  # how many there are more or less from it on
    for start, end in spans:
        first, last = int(start), int(end)
        if first == last:
            within[first] += end - start
        else:
            within[first] += first + 1 - start
            after[first + 1] += 1
            within[last] += end - last
            after[last] -= 1
    return [max(0.0, many + part) for many, part in zip(accumulate(after[:parts]), within, strict=False)]


def moment(seconds: float) -> datetime:
    """Return a database's seconds since 1970 as a time, to the millisecond."""
    return EPOCH + timedelta(milliseconds=round(seconds * 1000))
