"""Where spans and sends stand on the timeline: a lane for each agent, time from left to right. Pure geometry.

Places across are in percent of the window, so that the drawing takes whatever width there is. What would be too narrow
to be seen or chosen is gathered into blocks, the wider the more there is: a picture never holds more marks than a
browser draws at once, and a person tells apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from handoffs.spans import Doing, Span

MARKS = 1_500  # of the whole picture
NARROWEST = 0.25  # percent: about 3 px of 1200
TRACKS = 4  # what an agent does at once, one above the other
ROW, GAP = 14, 8  # px: the height of a track, and around a lane
CELLS = 120  # of a lane that tells how much there was
ARROWS = 250
SEND_CELLS = 100  # sends of one agent to another within such a part of the window are one arrow
STEPS = [timedelta(seconds=seconds) for seconds in (1, 5, 15, 60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200)]
STEPS += [timedelta(days=days) for days in (1, 2, 7, 14, 30)]
TICKS = 8


@dataclass(frozen=True)
class Window:
    """The time that is shown."""

    since: datetime
    until: datetime

    @property
    def length(self) -> timedelta:
        return self.until - self.since

    def at(self, moment: datetime | None, otherwise: float) -> float:
        """The place of a moment, from 0 to 100; `otherwise` where there is none."""
        if moment is None:
            return otherwise
        return min(100.0, max(0.0, 100 * ((moment - self.since) / self.length)))

    def moment(self, place: float) -> datetime:
        """The moment at a place."""
        return self.since + self.length * (place / 100)

    def cell(self, moment: datetime, width: float) -> int:
        """The number of the cell that a moment is in, by the clock and not by the window: nothing jumps as it moves."""
        return math.floor(moment.timestamp() / self._seconds(width))

    def cell_begins(self, number: int, width: float) -> datetime:
        """When a cell begins."""
        return datetime.fromtimestamp(number * self._seconds(width), UTC)

    def _seconds(self, width: float) -> float:
        return self.length.total_seconds() * width / 100


@dataclass(frozen=True)
class Bar:
    """A span that is drawn by itself, on a track of its lane."""

    x: float
    width: float
    track: int
    span: Span
    y: int = 0


@dataclass(frozen=True)
class Block:
    """Spans too narrow to be drawn by themselves, or too many at once: how many of each there are."""

    x: float
    width: float
    since: datetime
    until: datetime
    counted: Mapping[Doing, int]
    track: int
    y: int = 0

    @property
    def weight(self) -> float:
        """How dark it is, from 0 to 1: by the logarithm of how many they are."""
        return min(1.0, 0.4 + 0.3 * math.log10(self.count))

    @property
    def count(self) -> int:
        return sum(self.counted.values())

    @property
    def doing(self) -> Doing:
        """What most of them are."""
        return max(self.counted, key=lambda doing: self.counted[doing])


@dataclass(frozen=True)
class Lane:
    """An agent's spans; what is narrow stands on a track of its own, the last."""

    name: str | None  # None: what nobody has
    bars: list[Bar] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    top: int = 0

    @property
    def marks(self) -> list[Bar | Block]:
        """All that is drawn in it."""
        return [*self.bars, *self.blocks]

    @property
    def tracks(self) -> int:
        """How many tracks it has."""
        return max((mark.track + 1 for mark in self.marks), default=0)

    @property
    def height(self) -> int:
        return max(self.tracks, 1) * ROW + GAP

    @property
    def middle(self) -> float:
        return self.top + self.height / 2


def lanes(spans: Mapping[str | None, Sequence[Span]], window: Window, *, marks: int = MARKS) -> list[Lane]:
    """The lanes in the order they are given, from the top, with at most so many marks where blocks can help that."""
    narrow, drawn = NARROWEST, [_lane(name, found, window, NARROWEST) for name, found in spans.items()]
    while sum(len(lane.marks) for lane in drawn) > marks and narrow < 25:
        narrow *= 2
        drawn = [_lane(name, found, window, narrow) for name, found in spans.items()]
    top, placed = 0, []
    for lane in drawn:
        placed.append(_placed(lane, top))
        top += lane.height
    return placed


def _placed(lane: Lane, top: int) -> Lane:
    first = top + GAP // 2 + 1
    bars = [replace(bar, y=first + bar.track * ROW) for bar in lane.bars]
    blocks = [replace(block, y=first + block.track * ROW) for block in lane.blocks]
    return replace(lane, bars=bars, blocks=blocks, top=top)


def _lane(name: str | None, spans: Sequence[Span], window: Window, narrow: float) -> Lane:
    bars: list[Bar] = []
    free: list[float] = []  # by track, where its last bar ends
    gathered: dict[int, list[Span]] = {}
    cell = 2 * narrow
    placed = [(window.at(span.start, 0), window.at(span.end, 100), span) for span in spans]
    for x, end, span in sorted(placed, key=lambda place: (place[0], -place[1], place[2].handoff_id)):
        track = next((track for track, at in enumerate(free) if at <= x + 1e-9), len(free))
        if end - x < narrow or track == TRACKS:
            gathered.setdefault(window.cell(window.moment(x), cell), []).append(span)
            continue
        free[track : track + 1] = [end]
        bars.append(Bar(x, end - x, track, span))
    blocks = []
    for number, found in sorted(gathered.items()):
        since, until = window.cell_begins(number, cell), window.cell_begins(number + 1, cell)
        x, end = window.at(since, 0), window.at(until, 100)
        if len(found) == 1:  # by itself, as wide as can be chosen
            width = min(narrow, end - x)
            bars.append(Bar(min(max(window.at(found[0].start, 0), x), end - width), width, len(free), found[0]))
        else:
            counted = Counter(span.doing for span in found)
            blocks.append(Block(x, end - x, since, until, counted, len(free)))
    return Lane(name, bars, blocks)


def depth(spans: Iterable[Span], window: Window, cells: int = CELLS) -> list[float]:
    """How many spans there were at once, on average, in each of so many parts of the window."""
    found = [0.0] * cells
    for span in spans:
        start, end = window.at(span.start, 0) * cells / 100, window.at(span.end, 100) * cells / 100
        first, last = int(start), min(int(end), cells - 1)
        for cell in range(first, last + 1):
            found[cell] += max(0.0, min(end, cell + 1) - max(start, cell))
    return found


@dataclass(frozen=True)
class Arrow:
    """Messages from a lane to another within a part of the window."""

    x: float
    sender: str
    recipient: str
    count: int
    since: datetime
    until: datetime


def arrows(
    sends: Iterable[tuple[str, str, datetime]], window: Window, *, most: int = ARROWS
) -> tuple[list[Arrow], int]:
    """The sends (from whom, to whom, when) as arrows, the busiest where there are too many; how many sends that left
    out."""
    width = 100 / SEND_CELLS
    counted = Counter((sender, recipient, window.cell(at, width)) for sender, recipient, at in sends)
    kept = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:most]
    drawn = []
    for (sender, recipient, number), count in kept:
        since, until = window.cell_begins(number, width), window.cell_begins(number + 1, width)
        x = (window.at(since, 0) + window.at(until, 100)) / 2
        drawn.append(Arrow(x, sender, recipient, count, since, until))
    return drawn, counted.total() - sum(count for _, count in kept)


def ticks(window: Window, most: int = TICKS) -> list[tuple[float, datetime]]:
    """Round moments of the window with their places, at most so many."""
    step = next((step for step in STEPS if window.length / step <= most), STEPS[-1])
    seconds = step.total_seconds()
    number = math.ceil(window.since.timestamp() / seconds)
    found: list[tuple[float, datetime]] = []
    while (moment := datetime.fromtimestamp(number * seconds, UTC)) <= window.until and len(found) < most:
        found.append((window.at(moment, 0), moment))
        number += 1
    return found
