"""Recovery of a damaged store: count its readable rows, or write them into a new store."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from nexus.core.database.sqlite.errors import HEADER, beside
from nexus.core.operations.errors import Code, NexusError
from nexus.core.sqlite import connect
from nexus.maintenance import store_file
from nexus.maintenance.checks import expected_size

TABLE_LEAF = 13  # the type of a page with rows, in SQLite's file format


def readable(database: Path) -> dict[str, int]:
    """Return the number of readable rows of each table; empty if not even the list of tables can be read."""
    try:
        with _opened(database) as damaged:
            return {name: sum(1 for _ in _rows(damaged, name)) for name in store_file.tables(damaged)}
    except sqlite3.DatabaseError:
        return {}


def save(database: Path, destination: Path) -> dict[str, int]:
    """Write every readable row whose references are readable into a new store; return the number for each table.

    Raises VALIDATION_ERROR if `destination` exists, DB_ERROR if nothing can be read.
    """
    if destination.exists():
        raise store_file.exists_error(destination)
    with (
        store_file.explained(f"Nothing was saved to {destination}."),
        store_file.partial_file(destination) as partial,
    ):
        with _opened(database) as damaged, closing(connect(partial, isolation_level=None)) as saved:
            kept = _save(damaged, saved)
        if not sum(kept.values()):
            raise NexusError(Code.DB_ERROR, "No row can be read: nothing can be saved. Restore a backup.")
        store_file.publish(partial, destination)
    return kept


def _save(damaged: sqlite3.Connection, saved: sqlite3.Connection) -> dict[str, int]:
    saved.execute("BEGIN")
    for name, statement in store_file.tables(damaged).items():
        saved.execute(statement)
        _copy(damaged, saved, name)
    _copy(damaged, saved, "sqlite_sequence")
    while orphans := saved.execute("PRAGMA foreign_key_check").fetchall():  # references to lost rows
        for table, row, *_ in orphans:
            saved.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (row,))  # noqa: S608
    for _, name, sql in store_file.schema(damaged):
        if sql and store_file.VIRTUAL.match(sql):
            saved.execute(sql)
            _copy_search_index(damaged, saved, name)
    for kind, _, sql in store_file.schema(damaged):
        if kind in ("index", "trigger") and sql:
            saved.execute(sql)
    saved.execute("COMMIT")
    return store_file.row_counts(saved)


def _copy(damaged: sqlite3.Connection, saved: sqlite3.Connection, name: str) -> None:
    """Replace a table's rows with the readable ones; leave out rows that damage made invalid."""
    marks = ", ".join("?" * len(saved.execute(f'PRAGMA table_info("{name}")').fetchall()))
    saved.execute(f'DELETE FROM "{name}"')  # noqa: S608
    rows = (row[1:] for row in _rows(damaged, name))
    saved.executemany(f'INSERT OR IGNORE INTO "{name}" VALUES ({marks})', rows)  # noqa: S608


def _copy_keyed(damaged: sqlite3.Connection, saved: sqlite3.Connection, name: str) -> None:
    """Do the same for a table without rowid: copy up to the damage."""
    marks = ", ".join("?" * len(saved.execute(f'PRAGMA table_info("{name}")').fetchall()))
    saved.execute(f'DELETE FROM "{name}"')  # noqa: S608
    with suppress(sqlite3.DatabaseError):
        for row in damaged.execute(f'SELECT * FROM "{name}"'):  # noqa: S608
            saved.execute(f'INSERT OR IGNORE INTO "{name}" VALUES ({marks})', row)  # noqa: S608


def _copy_search_index(damaged: sqlite3.Connection, saved: sqlite3.Connection, name: str) -> None:
    """Copy an FTS5 index by its parts. One that is broken then is emptied, because writes would fail on it."""
    parts = saved.execute("SELECT name, sql FROM sqlite_master WHERE name GLOB ?", (f"{name}_*",)).fetchall()
    for part, sql in parts:
        if part == f"{name}_config":
            continue  # the new index has its own format version
        if "WITHOUT ROWID" in sql.upper():
            _copy_keyed(damaged, saved, part)
        else:
            _copy(damaged, saved, part)
    try:
        saved.execute(f'INSERT INTO "{name}"("{name}") VALUES (\'integrity-check\')')  # noqa: S608
    except sqlite3.DatabaseError:
        saved.execute(f'INSERT INTO "{name}"("{name}") VALUES (\'delete-all\')')  # noqa: S608


@contextmanager
def _opened(database: Path) -> Iterator[sqlite3.Connection]:
    """Open the damaged store for reading. If SQLite would refuse the file, open a repaired copy."""
    size, expected = database.stat().st_size, expected_size(database)
    with tempfile.TemporaryDirectory() as directory:
        if expected is None or size < expected:
            mended = Path(directory, "mended.db")
            shutil.copyfile(database, mended)
            _mend_file(mended)
            if (log := beside(database, "-wal")).exists():
                shutil.copyfile(log, beside(mended, "-wal"))  # it has the last commits
            database = mended
        with closing(store_file.open_to_look(database)) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            yield connection


def _mend_file(copy: Path) -> None:
    """Restore the file's first bytes, and append an empty page for each one that was cut off its end."""
    with copy.open("r+b") as file:
        file.write(HEADER)
        file.flush()
        page = int.from_bytes(file.read(2), "big")
        missing = (expected_size(copy) or 0) // page - copy.stat().st_size // page if page else 0
        if missing > 0:
            file.truncate(copy.stat().st_size // page * page)
            file.seek(0, os.SEEK_END)
            empty = bytes([TABLE_LEAF, 0, 0, 0, 0]) + page.to_bytes(2, "big")
            file.write(empty.ljust(page, b"\0") * missing)


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows, each after its rowid: from the first one up to the damage, then from the last one down to it."""
    last = None
    try:
        for row in connection.execute(f'SELECT rowid, * FROM "{table}" NOT INDEXED ORDER BY rowid'):  # noqa: S608
            last = row[0]
            yield row
    except sqlite3.DatabaseError:
        try:
            for row in connection.execute(
                f'SELECT rowid, * FROM "{table}" NOT INDEXED ORDER BY rowid DESC'  # noqa: S608
            ):
                if last is not None and row[0] <= last:
                    return
                yield row
        except sqlite3.DatabaseError:
            return
