"""Reads of a repository's reservations without Django. Standard library only, and little of it: most calls find
nothing, and each import costs them time."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from nexus.core import read_only
from nexus.reservations import patterns

if TYPE_CHECKING:
    from nexus.reservations.guard.held import HeldFile
    from nexus.reservations.guard.repository import Repository

BUSY_SECONDS, SERVER_SECONDS = 0.5, 3
FEW = 400  # keys in one query; for more files, all reservations are read
# For both databases; `?` is a value.
KEPT = """EXISTS (
    SELECT 1 FROM handoffs h
    WHERE h.handoff_id = r.handoff_id AND (
        h.claimed_by = r.agent_id AND (h.lease_expires_at >= ? OR h.status = 'SUBMITTED')
        OR h.status = 'OPEN' AND h.released_from = r.agent_id
    )
)"""
HELD = f"r.released_at IS NULL AND r.exclusive AND r.expires_at >= ? AND (r.handoff_id IS NULL OR {KEPT})"
PROJECTS = f"""
SELECT w.workspace_id, w.root_realpath FROM workspaces w
WHERE EXISTS (SELECT 1 FROM file_reservations r WHERE r.workspace_id = w.workspace_id AND {HELD})
"""  # noqa: S608  # made of our own constants
HOLDINGS = f"""
SELECT r.place, r.reservation_id, r.agent_id, r.pattern, r.reason, r.handoff_id, r.task_id, r.expires_at
FROM file_reservations r WHERE r.workspace_id = ? AND {HELD}
"""  # noqa: S608


class Unreadable(Exception):
    """The store cannot be read; the text says why."""


class ReservationStore:
    """An open store at one moment."""

    def __init__(self, query: Any, moment: Any) -> None:
        self._query, self._moments = query, (moment, moment)

    def projects(self, repository: Repository) -> dict[str, str]:
        """Return the projects of the repository with reservations: roots by their ids."""
        rows = self._query(PROJECTS, self._moments)
        return {workspace_id: root for workspace_id, root in rows if repository.concerns(root)}

    def conflicts(
        self, repository: Repository, projects: dict[str, str], agent_id: str | None, paths: Iterable[str]
    ) -> list[HeldFile]:
        """Return the files, by their paths in the work tree, that others than the agent hold; in the given order."""
        unique = list(dict.fromkeys(paths))
        concerned = []
        for workspace_id, root in projects.items():
            names = repository.names(root, unique)
            if rows := self._rows(workspace_id, [name for _, name in names]):
                concerned.append((names, rows))
        if not concerned:
            return []
        from nexus.reservations.guard import held  # rarely needed

        return held.conflicts(unique, [(names, held.HeldFiles(rows)) for names, rows in concerned], agent_id)

    def has_recorded(self, agent_id: str | None, conflicts: Sequence[HeldFile], *, passed: bool) -> bool:
        """Return whether each of these reservations names the agent, or the people, as refused, or as `passed`: a new
        process is too slow for an agent that tries again and again."""
        ids = list({each.holding.reservation_id for each in conflicts})[:FEW]
        sql = f"SELECT refused FROM file_reservations WHERE reservation_id IN ({', '.join('?' * len(ids))})"  # noqa: S608
        import json  # rarely needed

        try:
            rows = [json.loads(row) if isinstance(row, str) else row for (row,) in self._query(sql, ids)]
            return all(
                any((each["agent_id"], each.get("passed", False)) == (agent_id, passed) for each in row) for row in rows
            )
        except Exception:  # a store of before, or damaged: what records it says what is wrong
            return False

    def _rows(self, workspace_id: str, names: Sequence[str]) -> list[Sequence[Any]]:
        """Return the reservations of a project; for few files only those that may match them."""
        if not names:
            return []
        sql, values = HOLDINGS, [workspace_id, *self._moments]
        if len(names) * (patterns.PLACE_PARTS + 1) <= FEW:
            for column, keys in (
                ("place", {place for name in names for place in patterns.prefix_keys(name)}),
                ("extension", {"", *map(patterns.ending, names)}),
            ):
                wanted = list(filter(_is_text, keys))
                sql += f"AND r.{column} IN ({', '.join('?' * len(wanted))})\n"
                values += wanted
        return list(self._query(sql, values))


def _is_text(key: str) -> bool:
    """Return whether the store can hold it: no reservation has the name of a file that is no UTF-8."""
    return key == key.encode(errors="ignore").decode()


@contextmanager
def opened(store: str) -> Iterator[ReservationStore]:
    """Open the store at a file's path, or at a PostgreSQL URL. Raises Unreadable."""
    with _of_server(store) if "://" in store else _of_file(store) as opened:
        yield opened


@contextmanager
def _of_file(path: str) -> Iterator[ReservationStore]:
    try:
        with (
            read_only.address(path) as url,
            closing(sqlite3.connect(url, uri=True, timeout=BUSY_SECONDS)) as connection,
        ):
            seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
            moment = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(seconds))}.{nanoseconds // 1000:06}"
            yield ReservationStore(connection.execute, moment)
    except (sqlite3.Error, UnicodeError, OSError) as error:
        raise Unreadable(f"{path} cannot be read: {error}") from None


@contextmanager
def _of_server(url: str) -> Iterator[ReservationStore]:
    import site

    site.main()  # the hook starts without `site`, because most need no database driver
    try:
        import psycopg
    except ImportError:
        from nexus.core.installation import needs_extra

        raise Unreadable(needs_extra("PostgreSQL", "postgres")) from None
    try:
        address: dict[str, Any] = {"target_session_attrs": "read-write", **psycopg.conninfo.conninfo_to_dict(url)}
        address |= {"connect_timeout": SERVER_SECONDS, "options": f"-c statement_timeout={SERVER_SECONDS * 1000}"}
        with psycopg.connect(**address, autocommit=True) as connection:

            def query(sql: str, values: Sequence[Any]) -> Any:
                return connection.execute(sql.replace("?", "%s"), values)

            from datetime import UTC, datetime

            yield ReservationStore(query, datetime.now(UTC))
    except psycopg.Error as error:
        said = " ".join(str(error).split())
        raise Unreadable(f"the database cannot be read: {said[:300]}") from None
