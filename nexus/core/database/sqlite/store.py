"""The store as an SQLite file: its connections, the queue of its writers, its size, and the watch for commits.

The queue decides which process, and which of its threads, tries to take the database's lock next. In the watch,
`PRAGMA data_version` shows commits of other connections.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from django.db import DEFAULT_DB_ALIAS, OperationalError, connection, connections, transaction
from django.db.models import Model

from nexus.core.config import CoreSettings
from nexus.core.database import store_file
from nexus.core.database.base import Insertion
from nexus.core.database.sqlite.errors import beside
from nexus.core.database.sqlite.errors import failure as failure  # a part of this store, as are the others below
from nexus.core.database.sqlite.errors import is_busy as is_busy
from nexus.core.database.sqlite.quick_reads import look as look
from nexus.core.database.sqlite.schema import install as install
from nexus.core.database.sqlite.schema import pending as pending
from nexus.core.database.sqlite.schema import prepare as prepare
from nexus.core.database.store_file import check as check
from nexus.core.database.store_file import guard as guard
from nexus.core.sqlite import connect


def django_settings(config: CoreSettings) -> dict[str, Any]:
    """Return settings with WAL, foreign keys and the busy timeout, set when a connection opens; writes begin
    IMMEDIATE."""
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


WRITERS = 1  # as SQLite has
batch = contextlib.nullcontext  # the file is near: nothing is saved by sending statements together


def moment(value: datetime) -> str:
    """Return a time as Django stores it: as text, in UTC, without the zone."""
    return str(value.astimezone(UTC).replace(tzinfo=None))


def append(row: Model, statement: Callable[[], Insertion], *, numbered: bool) -> bool:
    """Leave the insert to the caller: a writer is alone."""
    return False


def release() -> None:
    """Do nothing: a thread keeps its connection to the file, which costs nobody anything."""


@contextmanager
def write(*names: str, late: bool = False) -> Iterator[None]:
    """Run a writing transaction, alone whatever its names: wait in the writers' queue, then `BEGIN IMMEDIATE`. Inside
    another one, a savepoint.

    It waits for the connection's busy timeout at most; after that it raises SQLite's own busy error, which is
    answered as a retryable DB_ERROR. A program without the queue, such as an older version or a shell, still meets
    SQLite's lock.
    """
    if connections[DEFAULT_DB_ALIAS].in_atomic_block:
        with transaction.atomic():
            yield
        return
    queue = queue_of(beside(CoreSettings.current().database, ".write.lock"))
    with ExitStack() as stack:
        _begin(queue, lambda: stack.enter_context(transaction.atomic()))
        yield


def _begin(queue: WriterQueue, begin: Callable[[], None]) -> None:
    """Begin when the queue lets this process try to take the lock.

    SQLite's own waiting sleeps in steps of up to 100 ms and lets whoever comes first pass; here one process at a time
    tries, every half millisecond. The queue only improves the order: SQLite's lock alone keeps two writers apart.
    """
    on = connections[DEFAULT_DB_ALIAS]
    on.ensure_connection()
    execute = on.connection.execute
    patience = execute("PRAGMA busy_timeout").fetchone()[0]
    deadline = time.monotonic() + patience / 1000
    execute("PRAGMA busy_timeout = 0")
    try:
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
    """Make a lock that another connection holds an immediate error within the block, not one after the busy timeout."""
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {CoreSettings.current().busy_timeout_ms:d}")


@contextmanager
def snapshot() -> Iterator[None]:
    """Let every read in the block see the same committed state, without a lock that a writer would wait for.

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
    """Return the size of the store and of its write-ahead log, in bytes."""
    database: Path = CoreSettings.current().database
    return sum(path.stat().st_size for path in (database, beside(database, "-wal")) if path.exists())


def compact() -> tuple[int, int]:
    """Rewrite the store without its free pages; return its size before and after, in bytes. It blocks other writers."""
    before = size_on_disk()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the smaller file, at once
    return before, size_on_disk()


def disk_used() -> float:
    """Return the used share of the store's disk, 0 to 1."""
    usage = shutil.disk_usage(CoreSettings.current().database.parent)
    return 1 - usage.free / usage.total


def given_out(model: type[Model]) -> int:
    """Return the highest automatic id that a model's table has given out, even to a deleted row; 0 if none."""
    return _given_out(model._meta.db_table)


def give_out_above(model: type[Model], head: int) -> None:
    """Let the next automatic id be above `head`, and above all ids given out before. Call it inside a transaction."""
    table = model._meta.db_table
    if head > _given_out(table):
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, head])


def _given_out(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = %s", [table])
        return int(cursor.fetchone()[0] or 0)


class ExclusiveLock:
    """A lock on a file beside the store."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def held(self) -> bool:
        """Return True: the operating system keeps the lock."""
        return True

    def release(self) -> None:
        self._lock.release()


def exclusive_lock(kind: str) -> ExclusiveLock | None:
    """Take the lock that makes this process the only one of a kind at the store; None while another has it."""
    from filelock import FileLock, Timeout

    path = beside(CoreSettings.current().database, f".{kind}.lock")
    lock = FileLock(path, mode=0o600, thread_local=False)  # any thread may release it
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return ExclusiveLock(lock)


class CommitWatch:
    """A watch for rows of a model that another connection committed, over a connection of its own."""

    def __init__(self, model: type[Model]) -> None:
        options, key = model._meta, model._meta.pk
        assert key is not None
        self._newest = f"SELECT max({key.column}) FROM {options.db_table}"  # noqa: S608  # names from the code
        with connection.wrap_database_errors, store_file.opening():
            self._probe = connect(connection.settings_dict["NAME"], timeout=0, check_same_thread=False, uri=True)
        self._version = self._read("PRAGMA data_version")

    def has_news(self, seen: int) -> bool:
        """Return whether there may be rows with a key above `seen`; True if the store cannot be read."""
        before, self._version = self._version, self._read("PRAGMA data_version")
        if self._version is not None and self._version == before:
            return False
        newest = self._read(self._newest)
        return newest is None or newest > seen

    def close(self) -> None:
        self._probe.close()

    def _read(self, sql: str) -> int | None:
        try:
            return int(self._probe.execute(sql).fetchone()[0] or 0)
        except sqlite3.DatabaseError:
            return None


def watch(model: type[Model]) -> CommitWatch:
    """Begin to watch for commits that add rows to `model`."""
    return CommitWatch(model)


try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

STEP_SECONDS = 0.0005  # how often the first of the queue looks whether the store is free


class WriterQueue:
    """The queue of a store's writers: the kernel's queue for a lock on a file, and before it one for the process's
    threads.

    A process that is killed leaves the queue at once. On systems without such locks, everybody is first.
    """

    def __init__(self, path: Path) -> None:
        self._threads = threading.Lock()
        self._hung: Future[None] | None = None  # a wait for the lock that outlasted its caller's patience
        self._descriptor: int | None = None
        if fcntl is not None:
            with suppress(OSError):
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def first(self, deadline: float) -> Iterator[None]:
        """Wait until this thread is the first of the queue, or the deadline has passed; the block may then try once."""
        known = self._threads.acquire(timeout=_until(deadline))
        locked = known and self._lock(deadline)
        try:
            yield
        finally:
            if locked:
                self._unlock()
            if known:
                self._threads.release()

    def _lock(self, deadline: float) -> bool:
        if self._descriptor is None:
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        except OSError:  # a file system without such locks
            return False
        if self._hung is not None and not self._hung.done():
            return False  # whoever is first is stopped, or hangs: no second write waits for it
        waiting: Future[None] = Future()
        # A lock's queue knows no time limit; and a process does not end before a thread that is no daemon.
        threading.Thread(target=self._wait_for_lock, args=(waiting,), name="nexus-queue", daemon=True).start()
        try:
            waiting.result(_until(deadline))
            return True
        except TimeoutError:
            self._hung = waiting
            waiting.add_done_callback(lambda done: self._unlock())  # it goes on, and then passes the turn on
        except OSError:
            pass
        return False

    def _wait_for_lock(self, waiting: Future[None]) -> None:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            waiting.set_exception(error)
        else:
            waiting.set_result(None)

    def _unlock(self) -> None:
        assert self._descriptor is not None
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def _until(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0)


@cache
def queue_of(path: Path) -> WriterQueue:
    """Return this process's queue for the lock file at `path`."""
    return WriterQueue(path)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=queue_of.cache_clear)  # a child that shared the lock would not queue
