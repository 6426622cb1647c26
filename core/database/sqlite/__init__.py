"""The store as an SQLite file: made, migrated under a lock, refused when it is newer than the code or damaged."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache
from io import FileIO
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from django.db.models import Model

from core.apps import database_objects
from core.config import CoreSettings
from core.database import place
from core.database.migrations import refuse_newer, shipped_migrations
from core.database.queue import STEP_SECONDS, WriterQueue, queue_of
from core.operations.errors import Code, NexusError

log = logging.getLogger(__name__)

LOCK_SECONDS = 120  # a migration by another process may take this long
HEADER = b"SQLite format 3\0"  # how every SQLite file starts
FULL_BYTES = 1 << 20  # a disk with less room than this is full, whatever SQLite calls its error
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}

_kept_open: dict[tuple[int, int], FileIO] = {}  # by device and inode

DAMAGED = "The store is damaged. Stop Nexus's processes and run `nexus doctor`: it says what can be saved, and how."
READ_ONLY = "This process may not write the store or its directory. Make both writable for the user it runs as."
CAUSES: Mapping[int, tuple[str, str]] = {
    sqlite3.SQLITE_CORRUPT: ("damaged", DAMAGED),
    sqlite3.SQLITE_NOTADB: ("damaged", DAMAGED),
    sqlite3.SQLITE_FULL: (
        "disk_full",
        "The disk of the store is full; nothing of this call was written. Free space, then send it again.",
    ),
    sqlite3.SQLITE_READONLY: ("read_only", READ_ONLY),
    sqlite3.SQLITE_PERM: ("read_only", READ_ONLY),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot_open",
        "The store cannot be opened: its directory is missing, not writable, or this process has too many open files.",
    ),
    sqlite3.SQLITE_IOERR: (
        "io_error",
        "The disk refused a read or a write of the store; nothing of this call was written. "
        "Look at the disk's state, quotas and file size limits, then run `nexus doctor`.",
    ),
}


def django_settings(config: CoreSettings) -> dict[str, Any]:
    """WAL, foreign keys and the busy timeout, set when a connection opens; writes begin IMMEDIATE."""
    return {
        "ENGINE": "core.database.sqlite.backend",
        "NAME": config.database,
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "timeout": config.busy_timeout_ms / 1000,
            "transaction_mode": "IMMEDIATE",
            "init_command": f"PRAGMA journal_mode=WAL; PRAGMA synchronous={config.durability};",
        },
    }


def prepare() -> None:
    """Create the home and bring the store to this version, once, however many processes start together.

    Raises DB_ERROR when the file cannot be opened, MIGRATION_ERROR when it is newer than the code or a step failed.
    """
    database: Path = CoreSettings.current().database
    try:
        CoreSettings.current().home.mkdir(parents=True, exist_ok=True, mode=0o700)
        refuse_damaged(database)
        if not database.exists():
            database.touch(mode=0o600)
    except OSError as error:
        raise NexusError(
            Code.DB_ERROR,
            f"Cannot create the store at {database}: {error.strerror}. Choose another --home or --db-path.",
        ) from None
    if not all(os.access(path, os.W_OK) for path in (database, database.parent)):
        raise NexusError(Code.DB_ERROR, f"Cannot use the store at {database}. {READ_ONLY}", {"cause": "read_only"})
    if pending():
        _migrate(database)


def release() -> None:
    """Nothing to do: a thread keeps its connection to the file, which costs nobody anything."""


def guard() -> None:
    """From here on this long-lived process refuses a store that was moved from under it."""
    place.guard()


def check() -> None:
    """Raises DB_ERROR while a guarded store is not where it was."""
    place.check()


def refuse_damaged(database: Path) -> None:
    """Look at a store before SQLite does, which would take a lost log or an emptied file for a new store.

    Raises DB_ERROR for a file that is no SQLite database or whose write-ahead log is gone. A missing file passes.
    """
    if not database.exists():
        return
    start = first_bytes(database, len(HEADER))
    if start != HEADER and (start or beside(database, "-wal").exists()):
        raise NexusError(
            Code.DB_ERROR,
            f"{database} is not a Nexus store, or its beginning was overwritten. It was left as it is. "
            "Choose another --db-path, or run `nexus doctor`: it says what can be saved.",
            {"cause": "damaged"},
        )
    if log_is_missing(database):
        raise NexusError(
            Code.DB_ERROR,
            f"The write-ahead log {beside(database, '-wal').name} of {database} was removed, and with it the latest "
            "commits. Put it back; or accept the loss with `nexus doctor --fix`; or use `nexus restore`.",
            {"cause": "damaged"},
        )


def first_bytes(database: Path, count: int) -> bytes:
    """The start of a store's file, read past SQLite.

    The file stays open for good: on POSIX, closing it would drop every lock that SQLite holds on it in this process,
    and another process, believing itself the last, would remove the write-ahead log under our connections.
    """
    status = database.stat()
    inode = status.st_dev, status.st_ino
    if inode not in _kept_open:
        _kept_open[inode] = database.open("rb", buffering=0)
    return os.pread(_kept_open[inode].fileno(), count, 0)


def log_is_missing(database: Path) -> bool:
    """Whether the log's index is there without the log: SQLite makes the log first and removes it last."""
    index, log = beside(database, "-shm"), beside(database, "-wal")
    return index.exists() and not log.exists() and index.exists() and not log.exists()  # twice: one may just be closing


@lru_cache(maxsize=16)  # every transaction asks for the same
def beside(database: Path, suffix: str) -> Path:
    """The file next to the store that SQLite keeps under this suffix."""
    return database.with_name(database.name + suffix)


def is_busy(error: Exception) -> bool:
    """Whether another connection's lock is all that is wrong."""
    return _primary_code(error) in BUSY


def failure(error: Exception) -> NexusError | None:
    """The DB_ERROR for an error of SQLite, from Django or direct, with its cause and what to do; None when unknown.

    `details.retryable` is there, and true, where the same call may succeed in a moment; else `details.cause`.
    """
    if is_busy(error):
        return NexusError(
            Code.DB_ERROR,
            "The store is busy with another writer. Send the same call again in a second or two.",
            {"retryable": True},
        )
    code = _primary_code(error)
    if code == sqlite3.SQLITE_CANTOPEN and not place.is_ours():
        return place.moved_error()
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _disk_is_full():
        code = sqlite3.SQLITE_FULL
    if code not in CAUSES:
        return None
    cause, message = CAUSES[code]
    return NexusError(Code.DB_ERROR, message, {"cause": cause})


def _primary_code(error: Exception) -> int:
    source = error if isinstance(error, sqlite3.Error) else error.__cause__
    return int(getattr(source, "sqlite_errorcode", 0)) & 0xFF


def _disk_is_full() -> bool:
    try:
        return shutil.disk_usage(CoreSettings.current().database.parent).free < FULL_BYTES
    except OSError:
        return False


def pending() -> bool:
    """Whether a migration on disk is not applied, or a process died before it had made the triggers again.

    Reads file names and two small tables: a start must stay quick.
    """
    place.check()
    database = CoreSettings.current().database
    try:
        patience = CoreSettings.current().busy_timeout_ms / 1000
        with closing(sqlite3.connect(place.existing(database), timeout=patience, uri=True)) as store:
            known = store.execute("SELECT 1 FROM sqlite_master WHERE name = 'django_migrations'").fetchone()
            rows = store.execute("SELECT app, name FROM django_migrations").fetchall() if known else []
            incomplete = bool(absent(store, database_objects("sqlite")))
    except sqlite3.Error as error:
        raise _cannot_open(database, error) from None
    applied = {(app, name) for app, name in rows}
    refuse_newer(database, applied)
    return incomplete or bool(shipped_migrations() - applied)


def _cannot_open(database: Path, error: Exception) -> NexusError:
    known = failure(error)
    if known is None:
        log.error("opening %s failed", database, exc_info=error)
        return NexusError(Code.DB_ERROR, f"Cannot use the store at {database}; the log has the cause.")
    return NexusError(Code.DB_ERROR, f"Cannot use the store at {database}. {known.message}", known.details)


def _migrate(database: Path) -> None:
    from filelock import FileLock, Timeout

    try:
        with FileLock(f"{database}.migrate.lock", timeout=LOCK_SECONDS, mode=0o600):
            if pending():
                call_command("migrate", interactive=False, verbosity=0)
    except Timeout:
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"Another process has been migrating {database} for {LOCK_SECONDS} s. Try again later.",
        ) from None
    except NexusError:
        raise
    except Exception as error:  # whatever a step raises
        known = failure(error)
        if known is None:
            log.exception("migrating %s failed", database)
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"Migrating {database} failed. {known.message if known else 'The log has the cause.'} The step that failed "
            "was undone, those before it stay applied, nothing is lost. Start again once the cause is gone.",
            known.details if known else {},
        ) from error
    finally:
        connection.close()


# Writing in turn


@contextmanager
def write() -> Iterator[None]:
    """A transaction that writes: the writers' queue first, then `BEGIN IMMEDIATE`. Inside another one, a savepoint.

    Waits for the connection's busy timeout at most; after that it raises SQLite's own busy error, which is answered as
    a retryable DB_ERROR. What does not know the queue, an older version or a shell, still meets SQLite's lock.
    """
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    queue = queue_of(beside(CoreSettings.current().database, ".write.lock"))
    with ExitStack() as stack:
        stack.callback(queue.left)
        _begin(queue, lambda: stack.enter_context(transaction.atomic()))
        yield


def _begin(queue: WriterQueue, begin: Callable[[], None]) -> None:
    """Begin at once within a burst, else when the queue lets this process look for the lock.

    SQLite's own waiting sleeps in steps of up to 100 ms and lets whoever comes first pass; here one process at a time
    looks, every half millisecond. The queue is a courtesy: what keeps two writers apart is SQLite's lock alone.
    """
    connection.ensure_connection()
    execute = connection.connection.execute
    patience = execute("PRAGMA busy_timeout").fetchone()[0]
    deadline = time.monotonic() + patience / 1000
    execute("PRAGMA busy_timeout = 0")
    try:
        if queue.in_burst():
            try:
                return begin()
            except OperationalError as error:
                if not is_busy(error):
                    raise
        with queue.first(deadline):
            while True:
                try:
                    return begin()
                except OperationalError as error:
                    if not is_busy(error) or time.monotonic() >= deadline:
                        raise
                time.sleep(STEP_SECONDS)
    finally:
        execute(f"PRAGMA busy_timeout = {patience:d}")


@contextmanager
def without_waiting() -> Iterator[None]:
    """Inside, a lock held by another connection fails at once instead of after the busy timeout."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {CoreSettings.current().busy_timeout_ms:d}")


@contextmanager
def snapshot() -> Iterator[None]:
    """Inside, every read sees the same committed state, and no lock is taken that a writer would wait for.

    Within a transaction that is so already.
    """
    if connection.in_atomic_block:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("BEGIN DEFERRED")
        try:
            yield
        finally:
            cursor.execute("ROLLBACK")


def given_out(model: type[Model]) -> int:
    """The highest automatic id that a model's table gave out, whatever became of its row; 0 when it gave none."""
    return _given_out(model._meta.db_table)


def give_out_above(model: type[Model], head: int) -> None:
    """Inside a transaction: the next automatic id is above `head`, and above what was given out before."""
    table = model._meta.db_table
    if head > _given_out(table):
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, head])


def admit_gaps(table: str) -> None:
    """Inside a transaction: ids that `table` lacks now, up to the highest it gave out, are no fault to doctor."""
    with connection.cursor() as cursor:
        cursor.execute(gaps_admitted(_given_out(table)))


def _given_out(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = %s", [table])
        return int(cursor.fetchone()[0] or 0)


def gaps_admitted(upto: int) -> str:
    """The statement by which a store says that ids up to `upto` may be missing: `PRAGMA user_version` holds it."""
    return f"PRAGMA user_version = {min(upto, 2**31 - 1):d}"


def size_on_disk() -> int:
    """Bytes of the store and of its write-ahead log."""
    database: Path = CoreSettings.current().database
    return sum(path.stat().st_size for path in (database, beside(database, "-wal")) if path.exists())


def compact() -> tuple[int, int]:
    """Rewrite the store without its free pages; its size before and after, in bytes. No other writer meanwhile."""
    before = size_on_disk()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the smaller file, at once
    return before, size_on_disk()


def disk_used() -> float:
    """The used share of the disk the store is on, 0 to 1."""
    usage = shutil.disk_usage(CoreSettings.current().database.parent)
    return 1 - usage.free / usage.total


def absent(store: sqlite3.Connection, objects: Mapping[str, str]) -> list[str]:
    """Which triggers, by name, a store does not have, or has with another text."""
    present = dict(store.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall())
    return [name for name, statement in objects.items() if present.get(name, "").split() != statement.split()]


def install(objects: Mapping[str, str]) -> None:
    """Make triggers anew, by name; a second time changes nothing."""
    with transaction.atomic(), connection.cursor() as cursor:
        for name, statement in objects.items():
            cursor.execute(f'DROP TRIGGER IF EXISTS "{name}"')
            cursor.execute(statement)


class Watch:
    """`PRAGMA data_version` on a connection of its own: it changes when another connection commits."""

    def __init__(self) -> None:
        with connection.wrap_database_errors:
            self._probe = sqlite3.connect(
                connection.settings_dict["NAME"], timeout=0, check_same_thread=False, uri=True
            )
        self._version = self._read()

    def changed(self) -> bool:
        """Whether there was a commit since the last look; a version that cannot be read counts as one."""
        before, self._version = self._version, self._read()
        return self._version is None or self._version != before

    def close(self) -> None:
        self._probe.close()

    def _read(self) -> int | None:
        try:
            return int(self._probe.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.OperationalError:
            return None


def watch() -> Watch:
    """Begin to watch for commits."""
    return Watch()


class Sole:
    """A lock on a file beside the store."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def held(self) -> bool:
        """The operating system keeps it."""
        return True

    def release(self) -> None:
        self._lock.release()


def sole(kind: str) -> Sole | None:
    """Become the only process of a kind over the store; None while another is."""
    from filelock import FileLock, Timeout

    path = beside(CoreSettings.current().database, f".{kind}.lock")
    lock = FileLock(path, mode=0o600, thread_local=False)  # any thread may release it
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return Sole(lock)
