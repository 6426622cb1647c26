"""The files that others hold, from the store's reservations. Standard library only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from nexus.reservations import patterns


class Holding(NamedTuple):
    """Files that only one agent may change."""

    reservation_id: str
    agent_id: str
    pattern: str
    reason: str | None
    handoff_id: str | None
    task_id: int | None
    expires_at: datetime


class HeldFile(NamedTuple):
    """A file that another agent holds, with its path in the work tree."""

    path: str
    holding: Holding


class HeldFiles:
    """The reservations of a project, from rows as `holdings.HOLDINGS` selects them."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self._by_key: dict[str, list[Holding]] = defaultdict(list)
        self._tails: dict[str, tuple[str, ...]] = {}  # by key, the text with which all paths matched there end
        for key, *row, expires_at in rows:
            with suppress(ValueError):  # a damaged row protects nothing, and `nexus doctor` reports it
                self._by_key[key].append(Holding._make([*row, _moment(expires_at)]))

    def of(self, name: str) -> Iterator[Holding]:
        """Yield the reservations of a file, by its path in the project. A trailing slash means a directory with its
        whole content: every reservation in it counts."""
        if name.endswith("/"):
            yield from self._of(name[:-1])
            yield from self._of(f"{name}*")
        else:
            yield from self._of(name)

    def _of(self, name: str) -> Iterator[Holding]:
        composed = patterns.composed(name)
        for key in patterns.prefix_keys(name):
            here = self._by_key.get(key)
            if here is None:
                continue
            if key not in self._tails:
                self._tails[key] = tuple(set(_tails(here)))
            if composed.endswith(self._tails[key]):  # one check for all of them saves most comparisons
                for holding in here:
                    with suppress(ValueError):
                        if patterns.matches(holding.pattern, name):
                            yield holding


def conflicts(
    paths: Sequence[str], projects: Iterable[tuple[Sequence[tuple[str, str]], HeldFiles]], agent_id: str | None
) -> list[HeldFile]:
    """Return the files that others than the agent hold, in the given order. A project is the files' paths with their
    names in it, and its reservations."""
    found: dict[str, HeldFile] = {}
    own: dict[str, str] = {}  # by path, the agent's own oldest reservation
    for names, held in projects:
        for path, name in names:
            for holding in held.of(name):
                if holding.agent_id == agent_id:
                    own[path] = min(own.get(path, holding.reservation_id), holding.reservation_id)
                elif path not in found or holding.reservation_id < found[path].holding.reservation_id:
                    found[path] = HeldFile(path, holding)
    # Two agents can hold one file in two work trees: the older reservation counts.
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
