"""Which files others hold, of what the store says is held. Standard library alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from nexus.reservations import patterns


class Holding(NamedTuple):
    """Files that an agent alone may change for now."""

    reservation_id: str
    agent_id: str
    pattern: str
    reason: str | None
    handoff_id: str | None
    task_id: int | None
    expires_at: datetime


class Conflict(NamedTuple):
    """A file, by its path below the work tree, that another agent holds."""

    path: str
    holding: Holding


class Held:
    """What is held in a project, of rows as `holdings.HOLDINGS` selects them."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self._by_place: dict[str, list[Holding]] = defaultdict(list)
        self._tails: dict[str, tuple[str, ...]] = {}  # by place, what ends all that is matched there
        for place, *row, expires_at in rows:
            with suppress(ValueError):  # a damaged row protects nothing, and `nexus doctor` tells of it
                self._by_place[place].append(Holding._make([*row, _moment(expires_at)]))

    def of(self, name: str) -> Iterator[Holding]:
        """What a file is held with, by its path relative to the project's root; with a slash at its end it is a
        directory, whose whole content is meant: what holds any name in it, or its own."""
        if name.endswith("/"):
            yield from self._of(name[:-1])
            yield from self._of(f"{name}*")
        else:
            yield from self._of(name)

    def _of(self, name: str) -> Iterator[Holding]:
        composed = patterns.composed(name)
        for place in patterns.prefix_keys(name):
            here = self._by_place.get(place)
            if here is None:
                continue
            if place not in self._tails:
                self._tails[place] = tuple(set(_tails(here)))
            if composed.endswith(self._tails[place]):  # a look at all of them spares most comparisons
                for holding in here:
                    with suppress(ValueError):
                        if patterns.matches(holding.pattern, name):
                            yield holding


def conflicts(
    paths: Sequence[str], projects: Iterable[tuple[Sequence[tuple[str, str]], Held]], agent_id: str | None
) -> list[Conflict]:
    """Which files others than the agent hold, in the order given; a project is the files' paths, each with its name
    there, and what is held in it."""
    found: dict[str, Conflict] = {}
    own: dict[str, str] = {}  # by path, the oldest reservation of the agent's own
    for names, held in projects:
        for path, name in names:
            for holding in held.of(name):
                if holding.agent_id == agent_id:
                    own[path] = min(own.get(path, holding.reservation_id), holding.reservation_id)
                elif path not in found or holding.reservation_id < found[path].holding.reservation_id:
                    found[path] = Conflict(path, holding)
    # In two work trees two agents can come to hold one file: it is whose reservation is older.
    return [
        found[path]
        for path in paths
        if path in found and not (path in own and own[path] < found[path].holding.reservation_id)
    ]


def _tails(holdings: Sequence[Holding]) -> Iterator[str]:
    for holding in holdings:
        with suppress(ValueError):
            yield patterns.tail(holding.pattern)


def _moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value).replace(tzinfo=UTC)
