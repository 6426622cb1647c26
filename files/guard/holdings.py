"""What others hold of a repository's files, read from the store without Django. Standard library alone."""

from __future__ import annotations

import sqlite3
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from files import patterns
from files.guard.repository import Repository

BUSY_SECONDS, SERVER_SECONDS = 0.5, 3
FEW = 400  # places that are asked for; of more files, everything that is held is read
# Of both databases alike; `?` is a value.
HELD = """
r.released_at IS NULL AND r.exclusive AND r.expires_at >= ? AND (r.handoff_id IS NULL OR EXISTS (
    SELECT 1 FROM handoffs h
    WHERE h.handoff_id = r.handoff_id AND h.claimed_by = r.agent_id AND h.lease_expires_at >= ?
))
"""
PROJECTS = f"""
SELECT w.workspace_id, w.root_realpath FROM workspaces w
WHERE EXISTS (SELECT 1 FROM file_reservations r WHERE r.workspace_id = w.workspace_id AND {HELD})
"""  # noqa: S608  # made of our own constants
HOLDINGS = f"""
SELECT r.place, r.reservation_id, r.agent_id, r.pattern, r.reason, r.handoff_id, r.task_id, r.expires_at
FROM file_reservations r WHERE r.workspace_id = ? AND {HELD}
"""  # noqa: S608


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
    """What is held in a project."""

    def __init__(self) -> None:
        self._by_place: dict[str, list[Holding]] = defaultdict(list)
        self._tails: dict[str, tuple[str, ...]] = {}  # by place, what ends all that is matched there

    def add(self, place: str, holding: Holding) -> None:
        """Take one in."""
        self._by_place[place].append(holding)

    def of(self, name: str) -> Iterator[Holding]:
        """What a file is held with, by its path relative to the project's root; with a slash at its end it is a
        directory, whose whole content is meant: what holds any name in it, or its own."""
        if name.endswith("/"):
            yield from self._of(name[:-1])
            yield from self._of(f"{name}*")
        else:
            yield from self._of(name)

    def _of(self, name: str) -> Iterator[Holding]:
        composed = unicodedata.normalize("NFC", name)
        for place in patterns.places(name):
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


class Unreadable(Exception):
    """Why the store says nothing."""


class Store:
    """An open store, at one moment."""

    def __init__(self, query: Any, moment: Any) -> None:
        self._query, self._moments = query, (moment, moment)

    def projects(self, repository: Repository) -> dict[str, str]:
        """The projects that have to do with the repository and in which anything is held: roots by their ids."""
        rows = self._query(PROJECTS, self._moments)
        return {workspace_id: root for workspace_id, root in rows if repository.concerns(root)}

    def conflicts(
        self, repository: Repository, projects: dict[str, str], agent_id: str | None, paths: Iterable[str]
    ) -> list[Conflict]:
        """Which files, given by their paths below the work tree, others than the agent hold; in the order given."""
        listed = list(dict.fromkeys(paths))
        found: dict[str, Conflict] = {}
        own: dict[str, str] = {}  # by path, the oldest reservation of the agent's own
        for workspace_id, root in projects.items():
            names = repository.names(root, listed)
            held = self._held(workspace_id, [name for _, name in names])
            for path, name in names:
                for holding in held.of(name):
                    if holding.agent_id == agent_id:
                        own[path] = min(own.get(path, holding.reservation_id), holding.reservation_id)
                    elif path not in found or holding.reservation_id < found[path].holding.reservation_id:
                        found[path] = Conflict(path, holding)
        # In two work trees two agents can come to hold one file: it is whose reservation is older.
        return [
            found[path]
            for path in listed
            if path in found and not (path in own and own[path] < found[path].holding.reservation_id)
        ]

    def _held(self, workspace_id: str, names: Sequence[str]) -> Held:
        """What is held in a project; of few files only what may have to do with them."""
        sql, values = HOLDINGS, [workspace_id, *self._moments]
        if len(names) * (patterns.PLACE_PARTS + 1) <= FEW:
            places = {place for name in names for place in patterns.places(name)}
            sql += f"AND r.place IN ({', '.join('?' * len(places))})"
            values += places
        held = Held()
        for place, *row, expires_at in self._query(sql, values) if names else ():
            with suppress(ValueError):  # a damaged row protects nothing, and `nexus doctor` tells of it
                held.add(place, Holding._make([*row, _moment(expires_at)]))
        return held


def _tails(holdings: Sequence[Holding]) -> Iterator[str]:
    for holding in holdings:
        with suppress(ValueError):
            yield patterns.tail(holding.pattern)


def _moment(value: Any) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value).replace(tzinfo=UTC)


@contextmanager
def opened(store: str) -> Iterator[Store]:
    """The store at a file's path, or a PostgreSQL database's URL. Raises Unreadable."""
    with _of_server(store) if "://" in store else _of_file(store) as opened:
        yield opened


@contextmanager
def _of_file(path: str) -> Iterator[Store]:
    try:
        url = f"file:{path.replace('%', '%25').replace('?', '%3f').replace('#', '%23')}?mode=ro"
        with closing(sqlite3.connect(url, uri=True, timeout=BUSY_SECONDS)) as connection:
            moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
            yield Store(connection.execute, moment)
    except (sqlite3.Error, UnicodeError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from None


@contextmanager
def _of_server(url: str) -> Iterator[Store]:
    import site

    site.main()  # the hook started without it, for the many that need no database's driver
    try:
        import psycopg
    except ImportError:
        raise Unreadable("PostgreSQL needs the extra: pip install 'nexus-hub[postgres]'") from None
    try:
        limit = f"-c statement_timeout={SERVER_SECONDS * 1000}"
        with psycopg.connect(url, connect_timeout=SERVER_SECONDS, options=limit, autocommit=True) as connection:

            def query(sql: str, values: Sequence[Any]) -> Any:
                return connection.execute(sql.replace("?", "%s"), values)

            yield Store(query, datetime.now(UTC))
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        raise Unreadable(f"the database cannot be read: {said[:300]}") from None
