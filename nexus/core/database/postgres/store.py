"""The store as a PostgreSQL database that several machines can reach: connections, one writer at a time, its errors."""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import Any, NoReturn, cast

import psycopg
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, transaction
from django.db.models import Model

from nexus.core.config import CoreSettings
from nexus.core.database.base import Insertion
from nexus.core.database.postgres import connection as postgres_connection
from nexus.core.database.postgres import schema
from nexus.core.database.postgres.backend.base import DatabaseWrapper
from nexus.core.database.postgres.connection import failure as failure  # a part of this store
from nexus.core.database.postgres.connection import is_busy as is_busy
from nexus.core.database.postgres.connection import is_lost, parameters, takes_writes
from nexus.core.operations.errors import Code, NexusError

log = logging.getLogger(__name__)

WRITERS_LOCK = 0x4E787573  # the advisory lock that every writing transaction takes first, shared if it has names
NAMES = 0x4E787577  # the first half of the locks of names
MOST_NAMES = 100  # of a transaction: the server has room for some thousand locks of all together
WRITERS = 8  # what is written at once is mostly round trips
POOL_SIZE = 20  # as many threads of a hub use the store at a time; more wait for one to come back
NOTIFY = "SELECT pg_notify(%s, %s)"
IDLE_SECONDS = 60.0  # a connection above the first that nobody used for so long is closed
STILL_SECONDS = 10  # a writer that said nothing for so long is ended by those who wait for it
# The server's own limit, idle_in_transaction_session_timeout, does not see the pause after a pipeline of psycopg.
END_STILL = """
    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND classid = 0 AND objid = %s AND datname = current_database()
        AND state LIKE 'idle in transaction%%' AND state_change <= clock_timestamp() - make_interval(secs => %s)
"""

prepare = schema.prepare
pending = schema.pending
install = schema.install


def moment(value: datetime) -> datetime:
    """Return the time itself: the driver takes it."""
    return value


def look(sql: str, values: Sequence[Any]) -> list[Any]:
    """Raise SynchronousOnlyOperation: the server is on the network, so no read is short enough for an event loop."""
    raise SynchronousOnlyOperation("the store is on a server")


def django_settings(config: CoreSettings) -> dict[str, Any]:
    """Return settings with a pool of connections. The backend checks each before use, so that no call fails after the
    server restarted."""
    options = parameters(config)
    del options["client_encoding"]  # Django's own
    patience = f"-c lock_timeout={config.busy_timeout_ms}"
    seconds = max(config.busy_timeout_ms / 1000, 1)
    durability = "" if config.durability == "full" else " -c synchronous_commit=off"
    options["options"] = f"{options.get('options', '')} {patience}{durability}".strip()
    return {
        "ENGINE": "nexus.core.database.postgres.backend",
        "NAME": options.pop("dbname"),
        "OPTIONS": {
            **options,
            "pool": {
                "connection_class": postgres_connection.Connection,
                "min_size": 1,
                "max_size": POOL_SIZE,
                "max_idle": IDLE_SECONDS,
                "timeout": seconds,
                "reconnect_timeout": seconds,  # then the next call tries anew, and no slot sleeps for minutes
            },
        },
    }


def release() -> None:
    """Give this thread's connection back to the pool; within a transaction keep it."""
    if connection.connection is not None and not connection.in_atomic_block:
        connection.close()


def guard() -> None:
    """Do nothing: a server's name leads to one store, wherever its files are."""


def check() -> None:
    """Do nothing, as `guard`."""


def _connection() -> DatabaseWrapper:
    return cast("DatabaseWrapper", connections[DEFAULT_DB_ALIAS])


@contextmanager
def write(*names: str, late: bool = False) -> Iterator[None]:
    """Run a writing transaction; inside another, a savepoint.

    Without names, or with too many, it is alone: it takes the advisory lock of all writers. With names it takes that
    lock shared, and one of its own for each name, in one order for all. It takes them first, because a transaction
    that holds rows when it asks for a lock can deadlock with the one that holds the lock. Only one that is `late` asks
    for more: of two that deadlock the server ends one, and its call is repeated.
    """
    on = _connection()
    locks = frozenset(zlib.crc32(name.encode()) - 2**31 for name in names if len(names) <= MOST_NAMES)
    if on.in_atomic_block:
        if on.beside is not None and not (locks and locks <= on.beside):
            if not late:
                raise RuntimeError("a writing transaction inside another needs one of its names, and no other")
            _lock(locks)
            on.beside = on.beside | locks if locks else None
            if not locks:
                on.insert_rows()
        with transaction.atomic():
            yield
        return
    done = False
    try:
        with transaction.atomic():
            with on.batch():  # the transaction's BEGIN goes with it
                _lock(locks)
            on.settle()
            on.beside = locks or None
            yield
            done = True
    except DatabaseError as error:
        if done and is_lost(error):
            _in_doubt(error)
        if postgres_connection.state(error) in postgres_connection.LOCKED:
            _end_still_writers()
        raise


def _lock(locks: frozenset[int]) -> None:
    """Take the locks of a writing transaction: those of its names, beside others, or that of all writers."""
    with _connection().cursor() as cursor:
        if locks:
            each = ", pg_advisory_xact_lock(%s, %s)" * len(locks)
            values = [part for lock in sorted(locks) for part in (NAMES, lock)]
            cursor.execute(f"SELECT pg_advisory_xact_lock_shared(%s){each}", [WRITERS_LOCK, *values])
        else:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [WRITERS_LOCK])


def _end_still_writers() -> None:
    """End writers that stand still in their transaction: their process was stopped, or their machine sleeps."""
    with contextlib.suppress(DatabaseError), _connection().cursor() as cursor:
        cursor.execute(END_STILL, [WRITERS_LOCK, STILL_SECONDS])


def _in_doubt(error: Exception) -> NoReturn:
    """Raise the error of a commit whose outcome is unknown: a caller must look before it sends the call again."""
    log.warning("The connection was lost while a transaction was committed (%s).", error)
    raise NexusError(
        Code.DB_ERROR,
        "The connection to the database was lost while this call was committed: it may have taken effect, or not. "
        "Look at what is there before you send it again.",
        {"cause": "commit_in_doubt"},
    ) from None


def batch() -> AbstractContextManager[None]:
    """Send the block's statements together, in libpq's pipeline mode."""
    return _connection().batch()


def append(row: Model, statement: Callable[[], Insertion], *, numbered: bool) -> bool:
    """Insert a row of the log with the commit, unless this writer is alone, and notify listeners then.

    Keys are given before they are committed: without an order, a follower that keeps a cursor would miss a row whose
    lower key is committed later.
    """
    on = _connection()
    on.notification = NOTIFY, [postgres_connection.CHANNEL, postgres_connection.OWN]
    if on.beside is None:
        return False
    on.rows.append((row, statement()))
    if numbered:
        on.insert_rows()
    return True


@contextmanager
def without_waiting() -> Iterator[None]:
    """Make a lock that another connection holds an immediate error within the block, not one after the busy timeout."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = 1")
    try:
        yield
    finally:
        if connection.connection is not None and connection.is_usable():  # a new one has the settings of all
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = %s", [CoreSettings.current().busy_timeout_ms])


@contextmanager
def snapshot() -> Iterator[None]:
    """Let every read in the block see the same committed state. A writing transaction does so already: it is alone."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def watch(model: type[Model]) -> postgres_connection.CommitWatch:
    """Begin to watch for commits, with this process's one listener, which the first watch starts."""
    return postgres_connection.watch()


def size_on_disk() -> int:
    """Return the size of the database on its server, in bytes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])


def disk_used() -> float:
    """Return 0: the server does not tell how full its disk is."""
    return 0.0


def compact() -> tuple[int, int]:
    """Mark the space of deleted rows as free and update the statistics, without blocking anybody."""
    before = size_on_disk()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
    return before, size_on_disk()


def given_out(model: type[Model]) -> int:
    """Return the highest automatic id that a model's table has given out; 0 if none."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence(model)}")  # noqa: S608
        return int(cursor.fetchone()[0])


def give_out_above(model: type[Model], head: int) -> None:
    """Let the next automatic id be above `head`, and above all ids given out before. Call it inside a transaction."""
    if head > given_out(model):
        with connection.cursor() as cursor:
            cursor.execute("SELECT setval(%s, %s)", [sequence(model), head])


def sequence(model: type[Model]) -> str:
    """Return the sequence of a model's automatic key, quoted."""
    with connection.cursor() as cursor:
        table = connection.ops.quote_name(model._meta.db_table)
        cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [table, model._meta.pk.column])
        return str(cursor.fetchone()[0])


KINDS = 0x4E787574  # the first half of the locks' names; the writers' lock has a name of one part


class ExclusiveLock:
    """An advisory lock, held as long as its connection lives."""

    def __init__(self, holder: psycopg.Connection[Any]) -> None:
        self._holder = holder

    def held(self) -> bool:
        """Ask the server, which releases the lock when the connection ends. One that takes no writes is the primary no
        more, and its locks count no more."""
        try:
            return takes_writes(self._holder)
        except psycopg.Error:
            return False

    def release(self) -> None:
        """Release the lock before the connection ends: the server notices the end a moment later, and would refuse
        another process until then."""
        with contextlib.suppress(psycopg.Error):  # it is lost, and the lock with it
            self._holder.execute("SELECT pg_advisory_unlock_all()")
        self._holder.close()


def exclusive_lock(kind: str) -> ExclusiveLock | None:
    """Take the lock that makes this process the only one of a kind at the store; None while another has it."""
    with connection.wrap_database_errors:
        holder = postgres_connection.Connection.connect(**parameters(CoreSettings.current()), autocommit=True)
        try:
            second = zlib.crc32(kind.encode()) >> 1
            got = holder.execute("SELECT pg_try_advisory_lock(%s, %s)", [KINDS, second]).fetchone()
        except BaseException:
            holder.close()
            raise
    if got is None or not got[0]:
        holder.close()
        return None
    return ExclusiveLock(holder)
