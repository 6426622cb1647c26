"""The dependency graph of a cycle's tasks: in order, as a flowchart, and as the layout of a drawing."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from nexus.core.cli import one_line
from nexus.planning import rules
from nexus.planning.schemas import TaskEntry

CRITICAL = "stroke-width:3px"


class Node(NamedTuple):
    """A task in the graph."""

    id: int
    title: str
    state: str  # ready, or its status
    step: int | None  # the longest chain up to it, from 1; None in a dependency cycle, where it is never ready
    waits_for: list[int]


class Graph(NamedTuple):
    """The tasks in an order in which they can be done, and the longest chain of unfinished tasks."""

    nodes: list[Node]
    critical_path: list[int]


def drawn(tasks: Sequence[TaskEntry]) -> Graph:
    """Return the graph of a cycle's tasks; tasks in a dependency cycle come last."""
    deps = {task["id"]: task["deps"] for task in tasks}
    status = {task["id"]: str(task["status"]) for task in tasks}
    ready, layers = set(rules.ready(deps, status)), rules.layers(deps)
    nodes = [
        Node(
            number,
            task["title"],
            "ready" if number in ready else status[number],
            layers[number] + 1 if number in layers else None,
            deps[number],
        )
        for task in tasks
        for number in [task["id"]]
    ]
    nodes.sort(key=lambda node: len(tasks) + 1 if node.step is None else node.step)
    return Graph(nodes, rules.critical_path(deps, {number for number in status if status[number] == rules.COMPLETED}))


def mermaid(graph: Graph) -> str:
    """Return the graph in Mermaid's language; an unknown dependency is a node of its own."""
    known = {node.id for node in graph.nodes}
    lines = ["flowchart LR"]
    lines += [f'  t{node.id}["{node.id}. {_label(node.title)} ({node.state})"]' for node in graph.nodes]
    lines += [f"  {_name(each)} --> t{node.id}" for node in graph.nodes for each in dict.fromkeys(node.waits_for)]
    missing = sorted({each for node in graph.nodes for each in node.waits_for} - known)
    lines += [f'  {_name(each)}["{each}. is not there"]' for each in missing]
    lines += [f"  style t{number} {CRITICAL}" for number in graph.critical_path]
    return "\n".join(lines)


def _name(number: int) -> str:
    return f"t{number}".replace("-", "m")  # a foreign file may contain a negative number


def _label(title: str) -> str:
    """Return a title that cannot end its quotes: all characters but letters, digits and blanks are escaped."""
    return "".join(each if each.isalnum() or each == " " else f"#{ord(each)};" for each in one_line(title))


WIDTH, HEIGHT = 176, 46  # of a node
ACROSS, DOWN, MARGIN = 56, 14, 8  # between columns, between nodes of a column, around the drawing
LANE = 6  # the height of a line that passes through a column
SWEEPS = 8  # forth and back; more of them change little
UNITS = 24.0  # the width of a line in a node, in small letters
MOST_LETTERS = 80  # of a line: some letters have no width

Stop = tuple[int, int]  # a task and a column: the task itself, or a line from it that passes


@dataclass(frozen=True)
class Box:
    """The position of a task; x and y are its upper left corner."""

    number: int
    x: float
    y: float

    @property
    def texts(self) -> tuple[float, float, float]:
        """The start of its two lines of text: x, and y of the first and of the second."""
        return self.x + 14, self.y + 20, self.y + 36


@dataclass(frozen=True)
class Line:
    """A line from a task to one that depends on it: the points that it passes, from left to right."""

    start: int
    end: int
    points: tuple[tuple[float, float], ...]

    @property
    def path(self) -> str:
        """The SVG path: horizontal within a column, a curve between two."""
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
    """Boxes and lines on a sheet of this size, without tasks in dependency cycles."""

    width: float
    height: float
    boxes: list[Box]
    lines: list[Line]


def draw(deps: rules.Deps, *, lines: int) -> Drawing:
    """Draw the tasks by layer, with few crossings, and those without any dependency in rows below.

    At most `lines` lines are drawn. Unknown dependencies are ignored.
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
        Box(task, _left(index % wide), bottom + index // wide * (HEIGHT + DOWN)) for index, task in enumerate(loose)
    ]
    return Drawing(
        max((box.x + WIDTH for box in boxes), default=0.0) + MARGIN,
        max([*(box.y + HEIGHT for box in boxes), *middles.values()], default=0.0) + MARGIN,
        boxes,
        [Line(start, end, tuple(_points(start, end, depth, middles))) for start, end in edges],
    )


def _columns(depth: Mapping[int, int], edges: Sequence[tuple[int, int]], linked: Collection[int]) -> list[list[Stop]]:
    """Return for each column its tasks and the lines that pass; lines from one task share a way."""
    reach = dict.fromkeys(linked, 0)
    for start, end in edges:
        reach[start] = max(reach[start], depth[end] - 1)
    columns: list[list[Stop]] = [[] for _ in range(max((depth[task] for task in linked), default=-1) + 1)]
    for task in sorted(linked):
        for column in range(depth[task], max(depth[task], reach[task]) + 1):
            columns[column].append((task, column))
    return columns


def _neighbours(edges: Sequence[tuple[int, int]], depth: Mapping[int, int]) -> dict[Stop, set[Stop]]:
    """Return for each stop the stops in the column before that have a line to it."""
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
    """Order each column by the average position of its neighbours, in sweeps forth and back."""
    below = _reversed(above)
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        for column in range(1, len(columns)) if forth else range(len(columns) - 2, -1, -1):
            adjacent = columns[column - 1 if forth else column + 1]
            positions = {stop: position for position, stop in enumerate(adjacent)}
            near = above if forth else below
            own = {stop: float(position) for position, stop in enumerate(columns[column])}
            for stop in columns[column]:
                if neighbours := near.get(stop):
                    own[stop] = sum(positions[each] for each in neighbours) / len(neighbours)
            columns[column].sort(key=lambda stop: own[stop])


def _heights(columns: Sequence[Sequence[Stop]], above: Mapping[Stop, set[Stop]]) -> dict[Stop, float]:
    """Return the middle of each stop, as near to its neighbours as the order and the sizes allow."""
    below = _reversed(above)
    first: dict[int, int] = {}
    for column in columns:
        for stop in column:
            first.setdefault(stop[0], stop[1])  # the task itself is in the first of its columns
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
    """Return middles in this order that do not overlap, with the least sum of squared distances from `wanted`.

    Stops that would overlap are merged into a block, which stands at the average that its members want.
    """
    offsets, offset = [], 0.0
    for position, size in enumerate(sizes):
        offset += (sizes[position - 1] + size) / 2 + DOWN if position else 0
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []  # the position of a block, and its number of stops
    for want, offset in zip(wanted, offsets, strict=True):
        start, many = want - offset, 1
        while blocks and blocks[-1][0] > start:
            before, count = blocks.pop()
            start, many = (before * count + start * many) / (count + many), count + many
        blocks.append((start, many))
    starts = [start for start, many in blocks for _ in range(many)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


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
    """Return as much of a text as fits into one line of a node."""
    widths = list(accumulate(_unit(letter) for letter in text[:MOST_LETTERS]))
    if len(text) <= MOST_LETTERS and (not widths or widths[-1] <= units):
        return text
    return f"{text[: sum(width <= units - _unit('…') for width in widths)].rstrip()}…"


def _unit(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF" or letter in "mwMW@%—…⟨⟩":
        return 2.0
    return 1.3 if letter.isupper() else 0.0 if unicodedata.combining(letter) else 1.0
