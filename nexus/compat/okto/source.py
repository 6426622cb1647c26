"""The store of okto-nexus 0.0.1 to 0.3.1. It is read, and never written."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nexus.core.database.sqlite.errors import beside, why_unreadable
from nexus.core.operations.errors import invalid
from nexus.maintenance.store_file import holders, open_to_look

NEWEST = 152  # the last migration of okto-nexus 0.3.1
DATABASE, LOCK = "nexus.db", "nexus.serve.lock"
LOCK_SECONDS = 60  # a lock that is older was left by a server that crashed
AT_ONCE = 500  # rows
TABLES = ("workspaces", "agents", "sessions", "channels", "artifacts", "messages", "message_deliveries", "handoffs",
          "events", "settings")  # fmt: skip
NOTHING = "Nothing was imported"

Row = Mapping[str, Any]


class OktoStore:
    """An open store, read in one snapshot."""

    def __init__(self, database: Path, connection: sqlite3.Connection) -> None:
        self.home = database.parent
        self._connection = connection
        self._columns: dict[str, set[str]] = {}

    @property
    def name(self) -> str:
        """What tells this store from others, wherever its file is: when it was made, to the microsecond."""
        (made,) = self._connection.execute("SELECT applied_at FROM schema_migrations WHERE version = 1").fetchone()
        return f"okto-nexus {made}"

    def has(self, table: str, column: str | None = None) -> bool:
        """Return whether this version's store has a table, or a column of it."""
        if table not in self._columns:
            rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
            self._columns[table] = {name for (name,) in rows}
        return column in self._columns[table] if column else bool(self._columns[table])

    def count(self, table: str, where: str = "1") -> int:
        """Return the number of rows; 0 for a table that this version does not have."""
        if not self.has(table):
            return 0
        return int(self._connection.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()[0])  # noqa: S608

    def first(self, table: str, column: str, after: int) -> int | None:
        """Return the lowest number of a column above `after`."""
        query = f"SELECT min({column}) FROM {table} WHERE {column} > ?"  # noqa: S608
        number: int | None = self._connection.execute(query, (after,)).fetchone()[0]
        return number

    def remember(self, table: str, query: str) -> None:
        """Keep the rows of a query in a temporary table, outside of the store's file."""
        self._connection.execute(f"CREATE TEMP TABLE {table} AS {query}")

    def pages(self, query: str) -> Iterator[list[Row]]:
        """Yield the rows of a query, some hundred at once."""
        cursor = self._connection.execute(query)
        names = [column[0] for column in cursor.description]
        while rows := cursor.fetchmany(AT_ONCE):
            yield [dict(zip(names, row, strict=True)) for row in rows]


@contextmanager
def opened(given: Path) -> Iterator[OktoStore]:
    """Open the store of a home, or a file. Raises VALIDATION_ERROR, with what to do, if it is none that can be read."""
    database = given / DATABASE if given.is_dir() else given
    if not database.is_file():
        raise invalid(f"{NOTHING}: there is no store at {database}. Name the home of okto-nexus, or its {DATABASE}.")
    before = _state(database)
    try:
        with closing(open_to_look(database)) as connection:
            connection.execute("BEGIN")  # one snapshot: its owner may go on meanwhile
            _check(connection)
            yield OktoStore(database, connection)
            if _state(database) != before:
                raise invalid(f"{NOTHING}: {database} was written to meanwhile. Stop okto-nexus, then try again.")
    except sqlite3.Error as error:
        raise invalid(f"{NOTHING}: {why_unreadable(error, database, 'okto-nexus')}") from None


def owner(home: Path) -> str | None:
    """Return the process that has the store open, in words; None if there is none."""
    for pid, command in holders(home / DATABASE).items():
        return f"{command or 'a process'} (process {pid})"
    with suppress(OSError):  # no lock: its server renews the lock's time every ten seconds
        if time.time() - (home / LOCK).stat().st_mtime < LOCK_SECONDS:
            return f"the server that holds {home / LOCK}"
    return None


def moment(text: Any, field: str) -> datetime:
    """Return a time of the store. Raises VALIDATION_ERROR."""
    try:
        parsed = datetime.fromisoformat(text)
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise invalid(f"{NOTHING}: {field} of a row holds {str(text)[:60]!r}, which is no time.") from None


def value(text: Any, field: str) -> Any:
    """Return a column's JSON. Raises VALIDATION_ERROR."""
    if text is None or text == "":
        return None
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise invalid(f"{NOTHING}: {field} of a row holds no JSON ({str(text)[:60]!r}).") from None


def _check(connection: sqlite3.Connection) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not {"schema_migrations", *TABLES} <= tables:
        raise invalid(f"{NOTHING}: this is no store of okto-nexus, or one older than 0.0.1.")
    (version,) = connection.execute("SELECT max(version) FROM schema_migrations").fetchone()
    if version is not None and version > NEWEST:
        raise invalid(
            f"{NOTHING}: the store is of a newer okto-nexus (migration {version}) than this Nexus knows ({NEWEST}, "
            "of 0.3.1). Update Nexus, then try again."
        )
    if version is None or not connection.execute("SELECT 1 FROM schema_migrations WHERE version = 1").fetchone():
        raise invalid(f"{NOTHING}: this is no store of okto-nexus.")


def _state(database: Path) -> list[tuple[int, int]]:
    """Return what changes with the content of a store: the file and its log."""
    files = [path for path in (database, beside(database, "-wal")) if path.exists()]
    return [(path.stat().st_mtime_ns, path.stat().st_size) for path in files]
