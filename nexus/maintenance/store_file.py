"""The store as a file, without Django's connection: for what must work when the store does not."""

from __future__ import annotations

import glob
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from nexus.core import files
from nexus.core.database.sqlite.errors import BUSY, beside
from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError
from nexus.core.progress import Bar
from nexus.core.sqlite import connect

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

WAIT_SECONDS = 5.0
PAGES_AT_ONCE = 1000
STEPS_A_LOOK = 100_000  # of SQLite's virtual machine (some milliseconds) between two looks at the clock
FAULTS_SHOWN = 20
CACHE_KIB = 65_536  # of a check, which looks up each row in the indexes
VIRTUAL = re.compile(r"\s*CREATE\s+VIRTUAL\s", re.IGNORECASE)

Progress = Callable[[int, int, int], object]  # status, pages remaining, pages in all


def open_store(database: Path, mode: str = "mode=rw") -> sqlite3.Connection:
    """Open an existing store: `mode=rw`, `mode=ro`, or `immutable=1` for one that nobody has open."""
    uri = f"{database.absolute().as_uri()}?{mode}"
    return connect(uri, uri=True, timeout=WAIT_SECONDS, isolation_level=None)


def open_to_look(database: Path) -> sqlite3.Connection:
    """Open a store for reading, so that nothing is changed and no file is left behind.

    A process that has the store open keeps a write-ahead log beside it; without a log the file can be read as it is.
    The same holds for an empty log whose index cannot be created, as on a full disk.
    """
    log = beside(database, "-wal")
    if not log.exists():
        return open_store(database, "immutable=1")
    connection = open_store(database, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        if log.stat().st_size:
            return connection
        connection.close()
        return open_store(database, "immutable=1")
    except sqlite3.DatabaseError:
        pass  # the caller examines it
    return connection


@contextmanager
def one_state(connection: sqlite3.Connection) -> Iterator[None]:
    """Within the block every read and a whole backup see one committed state, whatever others write."""
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the state is fixed by the first read
        yield
    finally:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def copy(source: sqlite3.Connection, path: Path, progress: Progress | None = None) -> None:
    """Copy a store into `path`, page by page; the result is one file without a log beside it."""
    target = connect(path, isolation_level=None)
    try:
        _backup(source, target, progress)
        target.execute("PRAGMA journal_mode=DELETE")
    finally:
        target.close()


def _backup(source: sqlite3.Connection, target: sqlite3.Connection, progress: Progress | None) -> None:
    """Copy one open store over another one.

    Raises DB_ERROR if it waits for a lock longer than the connections' timeout: Python's own loop would retry for ever.
    """

    def step(status: int, remaining: int, total: int) -> None:
        if status in BUSY:  # SQLite has waited for the timeout before it says so
            raise NexusError(Code.DB_ERROR, "A writer holds the store. Try again in a moment.", {"retryable": True})
        if progress is not None:
            progress(status, remaining, total)

    source.backup(target, pages=PAGES_AT_ONCE, progress=step)


@contextmanager
def reporting(connection: sqlite3.Connection, progress: Bar | None, step: str) -> Iterator[None]:
    """Keep the progress bar moving within the block, while a connection is busy with a step."""
    if progress is not None:
        progress.still(step)
        connection.set_progress_handler(lambda: progress.still(step), STEPS_A_LOOK)
    try:
        yield
    finally:
        connection.set_progress_handler(None, 0)


def migrations(connection: sqlite3.Connection) -> set[tuple[str, str]]:
    """Return (app, name) of the migrations applied to a store; empty if this is not a Nexus store."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'django_migrations'").fetchone():
        return set()
    return set(connection.execute("SELECT app, name FROM django_migrations"))


def schema(connection: sqlite3.Connection) -> list[tuple[str, str, str | None]]:
    """Return (type, name, SQL) of everything in a store's schema, ordered."""
    return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def tables(connection: sqlite3.Connection) -> list[str]:
    """Return the tables that hold rows, in the order of creation; without search indexes and their parts."""
    made = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY rowid").fetchall()
    indexes = [name for name, sql in made if VIRTUAL.match(sql or "")]
    derived = ("sqlite_", *(f"{name}_" for name in indexes))
    return [name for name, _ in made if name not in indexes and not name.startswith(derived)]


def row_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of rows of each table, by name."""
    count = 'SELECT count(*) FROM "{}"'
    return {name: connection.execute(count.format(name)).fetchone()[0] for name in tables(connection)}


def integrity_faults(connection: sqlite3.Connection, progress: Bar | None = None) -> list[str]:
    """Return the findings of SQLite's integrity checks, at most 20 lines.

    The whole file is checked first: only that finds pages that the free list or two tables share. Then it is one table
    at a time, for the progress bar.
    """
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    with reporting(connection, progress, "integrity of the file"):
        found = _faults(connection, f"PRAGMA quick_check({FAULTS_SHOWN})")
    for table in _each_table(connection, progress, "integrity"):
        found += _faults(connection, f"PRAGMA integrity_check('{table}')")
    return list(dict.fromkeys(found))[:FAULTS_SHOWN]


def _faults(connection: sqlite3.Connection, check: str) -> list[str]:
    found = [str(row[0]) for row in connection.execute(check)]
    return [] if found == ["ok"] else [line for fault in found for line in fault.splitlines()]


def dangling_references(connection: sqlite3.Connection, progress: Bar | None = None) -> dict[tuple[str, str], int]:
    """Return the number of rows with a dangling reference, by (table, table it refers to)."""
    counts: dict[tuple[str, str], int] = {}
    for name in _each_table(connection, progress, "references"):
        for table, _, parent, _ in connection.execute(f"PRAGMA foreign_key_check('{name}')"):
            counts[table, parent] = counts.get((table, parent), 0) + 1
    return counts


def _each_table(connection: sqlite3.Connection, progress: Bar | None, step: str) -> Iterator[str]:
    """Yield the tables with pages of their own, quoted for SQL, and show each in the progress bar."""
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY rowid")
    names = [name for (name,) in rows.fetchall()]
    for number, name in enumerate(names, 1):
        with reporting(connection, progress, f"{step} of {name}, table {number} of {len(names)}"):
            yield name.replace("'", "''")


def holders(database: Path) -> dict[int, str]:
    """Return the other processes that have the store open, with their command lines, as far as /proc shows them
    (Linux)."""
    found: dict[int, str] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # removed meanwhile, or another user's
            if int(process.name) != os.getpid() and any(
                database.samefile(descriptor) for descriptor in (process / "fd").iterdir() if descriptor.is_file()
            ):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    return found


@contextmanager
def partial_file(destination: Path) -> Iterator[Path]:
    """Yield a private temporary file in the directory of `destination`; it is removed at the end unless it was moved
    away.

    Files that a killed process left are removed first.
    """
    discard_abandoned(destination.parent, glob.escape(destination.name))
    with files.draft(destination) as path, path.open("rb") as claimed:
        _claim(claimed)
        try:
            yield path
        finally:
            path.with_name(path.name + "-journal").unlink(missing_ok=True)  # SQLite's journal of an interrupted copy


def discard_abandoned(directory: Path, names: str) -> None:
    """Remove the temporary files for files of these names, a glob, whose process has ended, and SQLite's files beside
    them."""
    if fcntl is None:
        return
    for path in directory.glob(f".{names}.*.partial"):
        with suppress(OSError), path.open("rb") as file:
            if _claim(file):
                for left in path.parent.glob(f"{glob.escape(path.name)}*"):
                    left.unlink(missing_ok=True)


def _claim(file: BinaryIO) -> bool:
    """Take the lock of a temporary file, which says that a process works on it; False if another process has it.

    The system frees it when the process ends, however that ends.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def one_file(path: Path) -> None:
    """Turn a store that nobody has open into one file, without a log beside it."""
    with closing(open_store(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")


def publish(path: Path, destination: Path) -> None:
    """Give a finished file its name, atomically and durably. Raises VALIDATION_ERROR if the name is taken."""
    try:
        files.publish(path, destination)
    except FileExistsError:
        raise exists_error(destination) from None


def exists_error(destination: Path) -> NexusError:
    """Return the error for a file that exists already."""
    return NexusError(
        Code.VALIDATION_ERROR, f"{destination} exists already and was left as it is. Choose another name."
    )


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an error of SQLite or the system into a DB_ERROR that begins with `what`."""
    try:
        yield
    except sqlite3.Error as error:
        known = store().failure(error)
        why = known.message if known else "SQLite refused it; run `nexus doctor`."
        raise NexusError(Code.DB_ERROR, f"{what} {why}", known.details if known else {}) from None
    except OSError as error:
        raise NexusError(Code.DB_ERROR, f"{what} {error.strerror}: {error.filename}.") from None
