"""Layout of the graph: positions of agents and lines. Pure geometry, the same for the same agents, so that nothing
jumps.

Two columns bent to an oval: each agent has its own row, so that labels are level and never overlap, however many there
are. The lines run in the space between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

WIDTH, MARGIN = 720.0, 24.0
REACH = 170.0  # of the oval to each side of the middle; labels stand outside of it
ROW, TALL_ROW, LOWEST = 26.0, 96.0, 560.0  # heights: the lowest and the highest row, and at least of all rows together
GAP = 8.0  # between a dot and its label
HEAD = 3.0  # between an arrow's head and the dot


@dataclass(frozen=True)
class Spot:
    """The position of an agent's dot and label."""

    x: float
    y: float
    radius: float
    label_x: float
    anchor: str  # SVG text-anchor


@dataclass(frozen=True)
class Sheet:
    """The size of the drawing, and the height of its rows."""

    width: float
    height: float
    row: float

    @property
    def largest(self) -> float:
        """The largest radius of a dot, so that none touches the next."""
        return min(20.0, self.row * 0.42)


def sheet_for(count: int) -> Sheet:
    """Return the sheet for so many agents."""
    rows = max(math.ceil(count / 2), 1)
    row = max(ROW, min(TALL_ROW, LOWEST / rows))
    return Sheet(WIDTH, round(rows * row + 2 * MARGIN, 1), row)


def oval(sheet: Sheet, radii: list[float]) -> list[Spot]:
    """Return positions from the top down the right side and up the left, one for each of `radii`, the sizes of the
    dots."""
    rows = max(math.ceil(len(radii) / 2), 1)
    return [
        _spot(sheet, i if i < rows else 2 * rows - 1 - i, rows, 1 if i < rows else -1, radius)
        for i, radius in enumerate(radii)
    ]


def _spot(sheet: Sheet, row: int, rows: int, side: int, radius: float) -> Spot:
    height = 2 * (row + 0.5) / rows - 1  # from -1 at the top to 1
    x = sheet.width / 2 + side * REACH * math.sqrt(1 - 0.8 * height * height)
    return Spot(
        x=round(x, 1),
        y=round(MARGIN + (row + 0.5) * sheet.row, 1),
        radius=radius,
        label_x=round(x + side * (radius + GAP), 1),
        anchor="start" if side > 0 else "end",
    )


def arc(sheet: Sheet, start: Spot, end: Spot) -> str:
    """Return a line from dot to dot as an SVG path, bent towards the middle, and to one side by its direction."""
    pull, aside = 0.45, 0.06
    middle_x, middle_y = (start.x + end.x) / 2, (start.y + end.y) / 2
    bend_x = middle_x + (sheet.width / 2 - middle_x) * pull + (end.y - start.y) * aside
    bend_y = middle_y + (sheet.height / 2 - middle_y) * pull * 0.4 - (end.x - start.x) * aside
    from_x, from_y = _edge(start, bend_x, bend_y, start.radius)
    to_x, to_y = _edge(end, bend_x, bend_y, end.radius + HEAD)
    return f"M{from_x:.1f} {from_y:.1f}Q{bend_x:.1f} {bend_y:.1f} {to_x:.1f} {to_y:.1f}"


def _edge(spot: Spot, towards_x: float, towards_y: float, away: float) -> tuple[float, float]:
    """Return the point at a distance from a dot's centre in a direction."""
    across, down = towards_x - spot.x, towards_y - spot.y
    length = math.hypot(across, down) or 1.0
    return spot.x + across / length * away, spot.y + down / length * away


def scaled(value: int, top: int, smallest: float, largest: float) -> float:
    """Return a size for a count, by its logarithm, because a few agents send most of the messages."""
    share = math.log1p(value) / math.log1p(top) if top else 0
    return round(smallest + (largest - smallest) * share, 1)
