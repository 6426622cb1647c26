"""Where the graph's agents and lines stand: pure geometry, the same for the same agents, so nothing jumps."""

from __future__ import annotations

import math
from dataclasses import dataclass

WIDTH, HEIGHT = 1000, 760
CENTRE = (WIDTH / 2, HEIGHT / 2)
RADIUS = 255
LEVEL_LABELS = 14  # up to so many agents labels stand level; more are turned to run outwards


@dataclass(frozen=True)
class Spot:
    """An agent's place on the circle, and how its label is set."""

    x: float
    y: float
    label_x: float
    label_y: float
    anchor: str  # SVG text-anchor
    turn: float  # degrees


def circle(count: int, radii: list[float]) -> list[Spot]:
    """Places for `count` agents, evenly on a circle from the top; `radii` are the sizes of their dots."""
    spots = []
    for i in range(count):
        angle = 2 * math.pi * i / max(count, 1) - math.pi / 2
        across, down = math.cos(angle), math.sin(angle)
        reach = RADIUS + radii[i] + 10
        leftward = across < -1e-9
        degrees = math.degrees(angle)
        turned = count > LEVEL_LABELS
        level = "middle" if abs(across) < 0.3 else ("end" if leftward else "start")
        spots.append(
            Spot(
                x=round(CENTRE[0] + RADIUS * across, 1),
                y=round(CENTRE[1] + RADIUS * down, 1),
                label_x=round(CENTRE[0] + reach * across, 1),
                label_y=round(CENTRE[1] + reach * down + (0 if turned else 4 + 6 * down), 1),
                anchor=("end" if leftward else "start") if turned else level,
                turn=round(degrees + 180 if leftward else degrees, 1) if turned else 0,
            )
        )
    return spots


def arc(start: Spot, end: Spot) -> tuple[str, float, float]:
    """A line between two places, bent towards the centre and aside by its direction; its path and its middle."""
    pull = 0.35
    middle_x, middle_y = (start.x + end.x) / 2, (start.y + end.y) / 2
    aside = 0.06
    bend_x = middle_x + (CENTRE[0] - middle_x) * pull + (end.y - start.y) * aside
    bend_y = middle_y + (CENTRE[1] - middle_y) * pull - (end.x - start.x) * aside
    path = f"M{start.x} {start.y}Q{bend_x:.1f} {bend_y:.1f} {end.x} {end.y}"
    return path, round((start.x + 2 * bend_x + end.x) / 4, 1), round((start.y + 2 * bend_y + end.y) / 4, 1)


def scaled(value: int, top: int, smallest: float, largest: float) -> float:
    """A size for a count: by its logarithm, because a few agents do most of the talking."""
    share = math.log1p(value) / math.log1p(top) if top else 0
    return round(smallest + (largest - smallest) * share, 1)
