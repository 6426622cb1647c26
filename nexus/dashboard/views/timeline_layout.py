"""Layout of the timeline: a row for each agent, time from left to right. Pure geometry.

Horizontal positions are in percent of the window, so that the drawing fits any width. Spans that would be too narrow to
see or choose are gathered into blocks, which are the wider the more spans there are. So a picture never has more marks
than a browser can draw and a person can tell apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property, partial
from itertools import accumulate
from typing import Protocol

from nexus.core.spans import at_once

MARKS = 1_200  # of the whole picture
NARROWEST = 0.25  # percent: about 3 px of 1200
WIDEST = 8.0  # the widest span that may be gathered
TRACKS = 4  # bars of an agent at the same time, one above the other
ROW, GAP = 14, 8  # px: the height of a track, and around a row
CELLS = 120  # of a row that shows numbers
ARROWS = 250
SEND_CELLS = 100  # parts of the window; messages between two agents within one are one arrow
STEPS = [timedelta(seconds=seconds) for seconds in (1, 5, 15, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200)]
STEPS += [timedelta(days=days) for days in (1, 2, 7, 14, 30)]
TICKS = 8


@dataclass(frozen=True)
class TimeWindow:
    """The period that is shown."""

    since: datetime
    until: datetime

    @cached_property
    def length(self) -> timedelta:
        return self.until - self.since

    @cached_property
    def clock(self) -> float:
        """Its beginning in percent of its length since 1970. Cells are aligned to the clock, so they do not jump as the
        window moves."""
        return 100 * self.since.timestamp() / self.length.total_seconds()

    def at(self, moment: datetime | None, otherwise: float) -> float:
        """Return the position of a moment, from 0 to 100; `otherwise` if there is none."""
        if moment is None:
            return otherwise
        position = 100 * ((moment - self.since) / self.length)
        return 0.0 if position < 0 else 100.0 if position > 100 else position

    def cell(self, moment: datetime, width: float) -> int:
        """Return the number of the cell of this width that a moment is in."""
        return int((self.clock + 100 * ((moment - self.since) / self.length)) // width)

    def cell_place(self, number: int, width: float) -> tuple[datetime, datetime, float, float]:
        """Return a cell's beginning and end, and its visible part as positions."""
        since, until = (self.since + self.length * ((each * width - self.clock) / 100) for each in (number, number + 1))
        return since, until, self.at(since, 0), self.at(until, 100)


class Span(Protocol):
    """A period in which an agent was doing something; `key` is the id of that turn, question or handoff."""

    @property
    def key(self) -> str: ...
    @property
    def doing(self) -> str: ...
    @property
    def start(self) -> datetime | None: ...  # None: before the known history
    @property
    def end(self) -> datetime | None: ...  # None: it goes on


@dataclass(frozen=True)
class Bar:
    """A span that is drawn by itself, on a track of its row."""

    x: float
    width: float
    track: int
    span: Span


@dataclass(frozen=True)
class Block:
    """Spans that are too narrow to be drawn one by one, or too many: the number of each kind."""

    x: float
    width: float
    since: datetime
    until: datetime
    counted: Mapping[str, int]
    track: int

    @property
    def weight(self) -> float:
        """Its darkness, from 0 to 1: the logarithm of the number of spans."""
        return min(1.0, 0.4 + 0.3 * math.log10(self.count))

    @property
    def count(self) -> int:
        return sum(self.counted.values())

    @property
    def doing(self) -> str:
        """The most frequent kind."""
        return max(self.counted, key=lambda doing: self.counted[doing])


@dataclass(frozen=True)
class TimelineRow:
    """An agent's spans. Blocks have a track of their own, the last one."""

    name: str | None  # None: handoffs that nobody has
    bars: list[Bar] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    top: int = 0

    @cached_property
    def marks(self) -> list[Bar | Block]:
        """Everything that is drawn in it."""
        return [*self.bars, *self.blocks]

    @cached_property
    def tracks(self) -> int:
        """The number of its tracks."""
        return max((mark.track + 1 for mark in self.marks), default=0)

    @property
    def height(self) -> int:
        return max(self.tracks, 1) * ROW + GAP

    @property
    def middle(self) -> float:
        return self.top + self.height / 2

    def y(self, mark: Bar | Block) -> int:
        """Return the vertical position of a mark."""
        return self.top + GAP // 2 + 1 + mark.track * ROW


Placed = tuple[float, float, Span]  # start, end
Cells = Mapping[int, Counter[str]]  # the number of each kind, by cell
Others = Callable[[float], Cells]  # for a width, the further spans that begin in each cell


def gathered_of(rows: int) -> float:
    """Return the width below which spans are gathered, so that the blocks of so many full rows stay within the limit
    of marks."""
    narrow = NARROWEST
    while narrow < WIDEST and rows * 100 / (2 * narrow) > MARKS:
        narrow *= 2
    return narrow


def draw_rows(
    spans: Mapping[str | None, Sequence[Span]],
    window: TimeWindow,
    *,
    marks: int = MARKS,
    narrow: float = NARROWEST,
    counted: Mapping[str | None, Cells] | None = None,
) -> list[TimelineRow]:
    """Return the rows in the given order, with at most so many marks as far as blocks can achieve that.

    Spans narrower than `narrow` are gathered; `counted` has the number of further spans, by row and cell.
    """
    at_first = narrow
    placed = {
        name: (_in_order(found, window), partial(_wider, (counted or {}).get(name, {}), at_first))
        for name, found in spans.items()
    }
    while narrow < WIDEST and sum(_cells(*found, window, narrow) for found in placed.values()) > marks:
        narrow *= 2
    drawn = _draw_all(placed, window, narrow)
    while narrow < WIDEST and sum(len(row.marks) for row in drawn) > marks:
        narrow *= 2
        drawn = _draw_all(placed, window, narrow)
    tops = accumulate((row.height for row in drawn), initial=0)
    return [replace(row, top=top) for row, top in zip(drawn, tops, strict=False)]


def _in_order(spans: Iterable[Span], window: TimeWindow) -> list[Placed]:
    """Return the spans from left to right; of those that begin together, the longest first."""
    placed = [(window.at(span.start, 0), window.at(span.end, 100), span) for span in spans]
    return sorted(placed, key=lambda each: (each[0], -each[1], each[2].key))


def _cells(placed: Sequence[Placed], others: Others, window: TimeWindow, narrow: float) -> int:
    """Count the marks of a row's spans that are narrower than this, with those of `others`."""
    first, cell = window.clock, 2 * narrow
    return len({int((first + x) // cell) for x, end, _ in placed if end - x < narrow} | others(narrow).keys())


def _wider(counted: Cells, at_first: float, narrow: float) -> Cells:
    """Return counts by cell, added up for wider cells."""
    if narrow == at_first:
        return counted
    found: dict[int, Counter[str]] = {}
    for number, count in counted.items():
        found.setdefault(number // int(narrow / at_first), Counter()).update(count)
    return found


def _draw_all(
    placed: Mapping[str | None, tuple[Sequence[Placed], Others]], window: TimeWindow, narrow: float
) -> list[TimelineRow]:
    bounds = cache(partial(window.cell_place, width=2 * narrow))  # many rows use the same cell
    return [_draw_row(name, *found, window, narrow, bounds) for name, found in placed.items()]


def _draw_row(
    name: str | None,
    placed: Sequence[Placed],
    others: Others,
    window: TimeWindow,
    narrow: float,
    bounds: Callable[[int], tuple[datetime, datetime, float, float]],
) -> TimelineRow:
    bars: list[Bar] = []
    free: list[float] = []  # the end of the last bar, by track
    gathered: dict[int, list[Span]] = {}
    first, cell = window.clock, 2 * narrow
    for x, end, span in placed:
        track = TRACKS
        if end - x >= narrow:
            track = next((track for track, at in enumerate(free) if at <= x + 1e-9), len(free))
        if track == TRACKS:
            gathered.setdefault(int((first + x) // cell), []).append(span)
            continue
        free[track : track + 1] = [end]
        bars.append(Bar(x, end - x, track, span))
    blocks, beside, nothing = [], others(narrow), Counter[str]()
    for number in sorted({*gathered, *beside}):
        found, doing = gathered.get(number, []), beside.get(number, nothing)
        since, until, x, end = bounds(number)
        if len(found) == 1 and not doing:  # a bar of its own, wide enough to be clicked
            width = min(narrow, end - x)
            bars.append(Bar(min(max(window.at(found[0].start, 0), x), end - width), width, len(free), found[0]))
            continue
        if found:
            doing = doing + Counter(span.doing for span in found)
        blocks.append(Block(x, end - x, since, until, doing, len(free)))
    return TimelineRow(name, bars, blocks)


def depth(spans: Iterable[Span], window: TimeWindow, cells: int = CELLS) -> list[float]:
    """Return the average number of spans at once, for each of so many parts of the window."""
    positions = ((window.at(span.start, 0), window.at(span.end, 100)) for span in spans)
    return at_once(((start * cells / 100, end * cells / 100) for start, end in positions), cells)


@dataclass(frozen=True)
class Arrow:
    """Messages from one row to another within a part of the window."""

    x: float
    sender: str
    recipient: str
    count: int
    since: datetime
    until: datetime


def arrows(
    sends: Iterable[tuple[str, str, datetime]], window: TimeWindow, *, most: int = ARROWS
) -> tuple[list[Arrow], int]:
    """Return the messages (sender, recipient, time) as arrows, the busiest if there are too many, and how many messages
    were left out."""
    width = 100 / SEND_CELLS
    counted = Counter((sender, recipient, window.cell(at, width)) for sender, recipient, at in sends)
    kept = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:most]
    drawn = []
    for (sender, recipient, number), count in kept:
        since, until, x, end = window.cell_place(number, width)
        drawn.append(Arrow((x + end) / 2, sender, recipient, count, since, until))
    return drawn, counted.total() - sum(count for _, count in kept)


def ticks(window: TimeWindow, most: int = TICKS) -> list[tuple[float, datetime]]:
    """Return round moments of the window with their positions, at most so many."""
    step = next((step for step in STEPS if window.length / step <= most), STEPS[-1])
    seconds = step.total_seconds()
    number = math.ceil(window.since.timestamp() / seconds)
    found: list[tuple[float, datetime]] = []
    while (moment := datetime.fromtimestamp(number * seconds, UTC)) <= window.until and len(found) < most:
        found.append((window.at(moment, 0), moment))
        number += 1
    return found
