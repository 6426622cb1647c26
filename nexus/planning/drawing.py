"""Where the tasks of a plan stand in their drawing: what comes before stands to the left. Pure geometry."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from nexus.planning import rules

WIDTH, HEIGHT = 176, 46  # of a node
ACROSS, DOWN, MARGIN = 56, 14, 8  # between columns, between nodes of one, around it all
LANE = 6  # the height that a line takes where it passes a column
SWEEPS = 8  # there and back; more changes little
UNITS = 24.0  # of a line in a node, a small letter being one
MOST_LETTERS = 80  # of a line: some take no room at all

Stop = tuple[int, int]  # a task and a column: where it stands, or where the line from it passes


@dataclass(frozen=True)
class Box:
    """A task's place; x and y are its upper left corner."""

    number: int
    x: float
    y: float

    @property
    def texts(self) -> tuple[float, float, float]:
        """Where its two lines of text begin: x, and y of the first and of the second."""
        return self.x + 14, self.y + 20, self.y + 36


@dataclass(frozen=True)
class Line:
    """From a task to one that waits for it; the points that it passes, from left to right."""

    start: int
    end: int
    points: tuple[tuple[float, float], ...]

    @property
    def path(self) -> str:
        """SVG path: level where it passes a column, a curve between two."""
        (x, y), *others = self.points
        drawn = f"M{x:.0f} {y:.1f}"
        for to_x, to_y in others:
            middle = (x + to_x) / 2
            drawn += (
                f"H{to_x:.0f}" if to_y == y else f"C{middle:.0f} {y:.1f} {middle:.0f} {to_y:.1f} {to_x:.0f} {to_y:.1f}"
            )
            x, y = to_x, to_y
        return drawn


@dataclass(frozen=True)
class Drawing:
    """Places and lines, on a sheet of this size; what no order can be found for is left out."""

    width: float
    height: float
    boxes: list[Box]
    lines: list[Line]


def draw(deps: rules.Deps, *, lines: int) -> Drawing:
    """The tasks by layer, in an order with few crossings, then those without any dependency in rows below.

    At most so many lines are drawn. Dependencies that there are not are passed over.
    """
    depth = rules.layers(deps)
    edges = [(each, task) for task in depth for each in dict.fromkeys(deps[task]) if each in depth][:lines]
    linked = {number for edge in edges for number in edge}
    columns = _columns(depth, edges, linked)
    above = _neighbours(edges, depth)
    _untangle(columns, above)
    middles = _heights(columns, above)
    top = min((middles[stop] - _tall(stop, depth) / 2 for stop in middles), default=0.0)
    middles = {stop: middle - top + MARGIN for stop, middle in middles.items()}
    boxes = [
        Box(task, _left(column), middles[task, column] - HEIGHT / 2)
        for task, column in middles
        if depth[task] == column
    ]
    bottom = max((middles[stop] + _tall(stop, depth) / 2 + DOWN for stop in middles), default=float(MARGIN))
    loose = [task for task in depth if task not in linked]
    wide = max(len(columns), 5)
    boxes += [
        Box(task, _left(place % wide), bottom + place // wide * (HEIGHT + DOWN)) for place, task in enumerate(loose)
    ]
    return Drawing(
        max((box.x + WIDTH for box in boxes), default=0.0) + MARGIN,
        max([*(box.y + HEIGHT for box in boxes), *middles.values()], default=0.0) + MARGIN,
        boxes,
        [Line(start, end, tuple(_points(start, end, depth, middles))) for start, end in edges],
    )


def _columns(depth: Mapping[int, int], edges: Sequence[tuple[int, int]], linked: Collection[int]) -> list[list[Stop]]:
    """By column, the tasks that stand there and the lines that pass; the lines from one task share their way."""
    reach = dict.fromkeys(linked, 0)
    for start, end in edges:
        reach[start] = max(reach[start], depth[end] - 1)
    columns: list[list[Stop]] = [[] for _ in range(max((depth[task] for task in linked), default=-1) + 1)]
    for task in sorted(linked):
        for column in range(depth[task], max(depth[task], reach[task]) + 1):
            columns[column].append((task, column))
    return columns


def _neighbours(edges: Sequence[tuple[int, int]], depth: Mapping[int, int]) -> dict[Stop, set[Stop]]:
    """By stop, those in the column before from which a line comes."""
    above: dict[Stop, set[Stop]] = {}
    for start, end in edges:
        above.setdefault((end, depth[end]), set()).add((start, depth[end] - 1))
        for column in range(depth[start] + 1, depth[end]):
            above.setdefault((start, column), set()).add((start, column - 1))
    return above


def _reversed(above: Mapping[Stop, set[Stop]]) -> dict[Stop, set[Stop]]:
    below: dict[Stop, set[Stop]] = {}
    for stop, befores in above.items():
        for before in befores:
            below.setdefault(before, set()).add(stop)
    return below


def _untangle(columns: list[list[Stop]], above: Mapping[Stop, set[Stop]]) -> None:
    """Order each column by the middle of its neighbours' places, forth and back."""
    below = _reversed(above)
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        for column in range(1, len(columns)) if forth else range(len(columns) - 2, -1, -1):
            beside = columns[column - 1 if forth else column + 1]
            place = {stop: position for position, stop in enumerate(beside)}
            near = above if forth else below
            own = {stop: float(position) for position, stop in enumerate(columns[column])}
            for stop in columns[column]:
                if neighbours := near.get(stop):
                    own[stop] = sum(place[each] for each in neighbours) / len(neighbours)
            columns[column].sort(key=lambda stop: own[stop])


def _heights(columns: Sequence[Sequence[Stop]], above: Mapping[Stop, set[Stop]]) -> dict[Stop, float]:
    """The middle of each stop: as near to its neighbours' as the order and the others' sizes allow."""
    below = _reversed(above)
    first: dict[int, int] = {}
    for column in columns:
        for stop in column:
            first.setdefault(stop[0], stop[1])  # where a task itself stands: the first column that it is in
    middles: dict[Stop, float] = {}
    for near, order in ((above, columns), (below, columns[::-1]), (above, columns)):
        for column in order:
            wanted = []
            for stop in column:
                known = [middles[each] for each in near.get(stop, ()) if each in middles]
                wanted.append(sum(known) / len(known) if known else middles.get(stop, 0.0))
            middles |= dict(zip(column, _apart(wanted, [_tall(stop, first) for stop in column]), strict=True))
    return middles


def _tall(stop: Stop, depth: Mapping[int, int]) -> int:
    return HEIGHT if depth[stop[0]] == stop[1] else LANE


def _apart(wanted: Sequence[float], sizes: Sequence[int]) -> list[float]:
    """Middles in this order, none over another, with the least sum of squared distances from what is wanted.

    Those that would overlap are pooled into a block, which stands where its members want it on average.
    """
    offsets, offset = [], 0.0
    for position, size in enumerate(sizes):
        offset += (sizes[position - 1] + size) / 2 + DOWN if position else 0
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []  # the place of a block, and how many it has
    for want, offset in zip(wanted, offsets, strict=True):
        place, many = want - offset, 1
        while blocks and blocks[-1][0] > place:
            before, count = blocks.pop()
            place, many = (before * count + place * many) / (count + many), count + many
        blocks.append((place, many))
    places = [place for place, many in blocks for _ in range(many)]
    return [place + offset for place, offset in zip(places, offsets, strict=True)]


def _left(column: int) -> float:
    return MARGIN + column * (WIDTH + ACROSS)


def _points(
    start: int, end: int, depth: Mapping[int, int], middles: Mapping[Stop, float]
) -> Iterator[tuple[float, float]]:
    yield _left(depth[start]) + WIDTH, middles[start, depth[start]]
    for column in range(depth[start] + 1, depth[end]):
        yield _left(column), middles[start, column]
        yield _left(column) + WIDTH, middles[start, column]
    yield _left(depth[end]), middles[end, depth[end]]


def fitted(text: str, units: float = UNITS) -> str:
    """As much of a text as a line of a node holds."""
    widths = list(accumulate(_unit(letter) for letter in text[:MOST_LETTERS]))
    if len(text) <= MOST_LETTERS and (not widths or widths[-1] <= units):
        return text
    return f"{text[: sum(width <= units - _unit('…') for width in widths)].rstrip()}…"


def _unit(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF" or letter in "mwMW@%—…⟨⟩":
        return 2.0
    return 1.3 if letter.isupper() else 0.0 if unicodedata.combining(letter) else 1.0
