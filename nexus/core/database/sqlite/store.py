"""The store as an SQLite file: its connections, one writer at a time in turn, its size."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections, transaction
from django.db.models import Model

from nexus.core.config import CoreSettings
from nexus.core.database.place import check, guard
from nexus.core.database.sqlite.at_hand import look
from nexus.core.database.sqlite.commits import watch
from nexus.core.database.sqlite.errors import failure, is_busy
from nexus.core.database.sqlite.file import beside
from nexus.core.database.sqlite.queue import STEP_SECONDS, WriterQueue, queue_of
from nexus.core.database.sqlite.schema import install, pending, prepare

__all__ = [
    "admit_gaps",
    "check",
    "compact",
    "disk_used",
    "django_settings",
    "exclusive_lock",
    "failure",
    "give_out_above",
    "given_out",
    "guard",
    "install",
    "is_busy",
    "look",
    "pending",
    "prepare",
    "release",
    "size_on_disk",
    "snapshot",
    "watch",
    "without_waiting",
    "write",
]


def django_settings(config: CoreSettings) -> dict[str, Any]:
    """WAL, foreign keys and the busy timeout, set when a connection opens; writes begin IMMEDIATE."""
    return {
        "ENGINE": "nexus.core.database.sqlite.backend",
        "NAME": config.database,
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "timeout": config.busy_timeout_ms / 1000,
            "transaction_mode": "IMMEDIATE",
            "init_command": f"PRAGMA journal_mode=WAL; PRAGMA synchronous={config.durability};",
        },
    }


def release() -> None:
    """Nothing to do: a thread keeps its connection to the file, which costs nobody anything."""


@contextmanager
def write() -> Iterator[None]:
    """A transaction that writes: the writers' queue first, then `BEGIN IMMEDIATE`. Inside another one, a savepoint.

    Waits for the connection's busy timeout at most; after that it raises SQLite's own busy error, which is answered as
    a retryable DB_ERROR. What does not know the queue, an older version or a shell, still meets SQLite's lock.
    """
    if connections[DEFAULT_DB_ALIAS].in_atomic_block:
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
    on = connections[DEFAULT_DB_ALIAS]
    on.ensure_connection()
    execute = on.connection.execute
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


class ExclusiveLock:
    """A lock on a file beside the store."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def held(self) -> bool:
        """The operating system keeps it."""
        return True

    def release(self) -> None:
        self._lock.release()


def exclusive_lock(kind: str) -> ExclusiveLock | None:
    """Become the only process of a kind over the store; None while another is."""
    from filelock import FileLock, Timeout

    path = beside(CoreSettings.current().database, f".{kind}.lock")
    lock = FileLock(path, mode=0o600, thread_local=False)  # any thread may release it
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return ExclusiveLock(lock)
