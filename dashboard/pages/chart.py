"""Where the graph's agents and lines stand: pure geometry, the same for the same agents, so nothing jumps."""

from __future__ import annotations

import math
from dataclasses import dataclass

LEVEL_LABELS = 14  # up to so many agents labels stand level; more are turned to run outwards


@dataclass(frozen=True)
class Sheet:
    """The drawing's size: small for few agents, so that they are drawn large."""

    width: int
    height: int
    radius: int

    @property
    def centre(self) -> tuple[float, float]:
        return self.width / 2, self.height / 2


FEW, MANY = Sheet(760, 520, 190), Sheet(1000, 880, 280)


def sheet_for(count: int) -> Sheet:
    """The sheet for so many agents."""
    return FEW if count <= LEVEL_LABELS else MANY


@dataclass(frozen=True)
class Spot:
    """An agent's place on the circle, and how its label is set."""

    x: float
    y: float
    label_x: float
    label_y: float
    anchor: str  # SVG text-anchor
    turn: float  # degrees


def circle(sheet: Sheet, radii: list[float]) -> list[Spot]:
    """Places evenly on a circle from the top, one for each of `radii`, the sizes of the agents' dots."""
    spots, count = [], len(radii)
    for i in range(count):
        angle = 2 * math.pi * i / max(count, 1) - math.pi / 2
        across, down = math.cos(angle), math.sin(angle)
        reach = sheet.radius + radii[i] + 10
        leftward = across < -1e-9
        degrees = math.degrees(angle)
        turned = count > LEVEL_LABELS
        level = "middle" if abs(across) < 0.3 else ("end" if leftward else "start")
        spots.append(
            Spot(
                x=round(sheet.centre[0] + sheet.radius * across, 1),
                y=round(sheet.centre[1] + sheet.radius * down, 1),
                label_x=round(sheet.centre[0] + reach * across, 1),
                label_y=round(sheet.centre[1] + reach * down + (0 if turned else 4 + 6 * down), 1),
                anchor=("end" if leftward else "start") if turned else level,
                turn=round(degrees + 180 if leftward else degrees, 1) if turned else 0,
            )
        )
    return spots


def arc(sheet: Sheet, start: Spot, end: Spot) -> tuple[str, float, float]:
    """A line between two places, bent towards the centre and aside by its direction; its path and its middle."""
    pull = 0.35
    middle_x, middle_y = (start.x + end.x) / 2, (start.y + end.y) / 2
    aside = 0.06
    bend_x = middle_x + (sheet.centre[0] - middle_x) * pull + (end.y - start.y) * aside
    bend_y = middle_y + (sheet.centre[1] - middle_y) * pull - (end.x - start.x) * aside
    path = f"M{start.x} {start.y}Q{bend_x:.1f} {bend_y:.1f} {end.x} {end.y}"
    return path, round((start.x + 2 * bend_x + end.x) / 4, 1), round((start.y + 2 * bend_y + end.y) / 4, 1)


def scaled(value: int, top: int, smallest: float, largest: float) -> float:
    """A size for a count: by its logarithm, because a few agents do most of the talking."""
    share = math.log1p(value) / math.log1p(top) if top else 0
    return round(smallest + (largest - smallest) * share, 1)
