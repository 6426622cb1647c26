"""The store as a PostgreSQL database that several machines reach: connections, one writer at a time, its errors."""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import psycopg
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError, connection, transaction
from django.db.models import Model

from nexus.core.config import CoreSettings
from nexus.core.database.postgres import connection as postgres_connection
from nexus.core.database.postgres import schema
from nexus.core.database.postgres.connection import failure, is_busy, is_lost, parameters
from nexus.core.operations.errors import Code, NexusError

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

log = logging.getLogger(__name__)

WRITERS_LOCK = 0x4E787573  # the advisory lock that every writing transaction takes first
POOL_SIZE = 16  # as many threads of a hub use the store at a time; more wait for one to come back
TAKE_TURN = "SELECT pg_advisory_xact_lock(%s), pg_notify(%s, %s)"
IDLE_SECONDS = 60.0  # a connection above the first that nobody used for so long is closed

prepare = schema.prepare
pending = schema.pending
install = schema.install


def look(sql: str, values: Sequence[Any]) -> list[Any]:
    """Never on an event loop: the server is as far as the network."""
    raise SynchronousOnlyOperation("the store is on a server")


def django_settings(config: CoreSettings) -> dict[str, Any]:
    """A pool of connections; the backend looks at each before it is used: a server that was restarted costs no call."""
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
                "min_size": 1,
                "max_size": POOL_SIZE,
                "max_idle": IDLE_SECONDS,
                "timeout": seconds,
                "reconnect_timeout": seconds,  # then the next call tries anew, and no slot sleeps for minutes
            },
        },
    }


def release() -> None:
    """Give this thread's connection back to the pool; within a transaction it stays."""
    if connection.connection is not None and not connection.in_atomic_block:
        connection.close()


def guard() -> None:
    """Nothing to do: a server's name leads to one store, wherever its files are."""


def check() -> None:
    """Nothing to do, as `guard`."""


@contextmanager
def write() -> Iterator[None]:
    """A transaction that writes: the advisory lock of all writers first, then the rest. Inside another, a savepoint.

    Ids are given before they are committed: without the lock a follower that keeps a cursor would miss an event whose
    lower id is committed later, and two agents could win one handoff. It is taken first, because a transaction that
    holds rows when it asks for the lock can deadlock with the one that holds the lock. Listeners are told at commit.
    """
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    done = False
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(TAKE_TURN, [WRITERS_LOCK, postgres_connection.CHANNEL, postgres_connection.OWN])
            yield
            done = True
    except DatabaseError as error:
        if done and is_lost(error):
            _in_doubt(error)
        raise


def _in_doubt(error: Exception) -> NoReturn:
    """Whether the server committed is unknown: nobody may send this again without a look."""
    log.warning("the connection was lost while a transaction was committed", exc_info=error)
    raise NexusError(
        Code.DB_ERROR,
        "The connection to the database was lost while this call was committed: it may have taken effect, or not. "
        "Look at what is there before you send it again.",
        {"cause": "commit_in_doubt"},
    ) from None


@contextmanager
def without_waiting() -> Iterator[None]:
    """Inside, a lock held by another connection fails at once instead of after the busy timeout."""
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
    """Inside, every read sees the same committed state. A writing transaction has that already: it is alone."""
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def watch(model: type[Model]) -> postgres_connection.Watch:
    """Begin to watch for commits: this process's one listener, which is started with the first watch."""
    return postgres_connection.watch()


def admit_gaps(table: str) -> None:
    """Nothing to do: a transaction that is undone burns its ids here, so that a gap is no fault to anybody."""


def size_on_disk() -> int:
    """Bytes that the database takes on its server."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])


def disk_used() -> float:
    """0: how full the server's disk is cannot be asked of it."""
    return 0.0


def compact() -> tuple[int, int]:
    """Mark the room of deleted rows as free, and bring statistics up to date; nobody waits for it meanwhile."""
    before = size_on_disk()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
    return before, size_on_disk()


def given_out(model: type[Model]) -> int:
    """The highest automatic id that a model's table gave out; 0 when it gave none."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence(model)}")  # noqa: S608
        return int(cursor.fetchone()[0])


def give_out_above(model: type[Model], head: int) -> None:
    """Inside a transaction: the next automatic id is above `head`, and above what was given out before."""
    if head > given_out(model):
        with connection.cursor() as cursor:
            cursor.execute("SELECT setval(%s, %s)", [sequence(model), head])


def sequence(model: type[Model]) -> str:
    """The sequence of a model's automatic key, quoted."""
    with connection.cursor() as cursor:
        table = connection.ops.quote_name(model._meta.db_table)
        cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [table, model._meta.pk.column])
        return str(cursor.fetchone()[0])


KINDS = 0x4E787574  # the first half of the locks' names; the writers' lock has a name of one part


class ExclusiveLock:
    """The lock, for as long as its connection lives."""

    def __init__(self, holder: psycopg.Connection[Any]) -> None:
        self._holder = holder

    def held(self) -> bool:
        """Asks the server, which lets go of the lock when the connection ends."""
        try:
            self._holder.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def release(self) -> None:
        """Let go before the connection ends: that the server notices a moment later, and another would be refused."""
        with contextlib.suppress(psycopg.Error):  # it is lost, and the lock with it
            self._holder.execute("SELECT pg_advisory_unlock_all()")
        self._holder.close()


def exclusive_lock(kind: str) -> ExclusiveLock | None:
    """Become the only process of a kind over the store; None while another is."""
    with connection.wrap_database_errors:
        holder = psycopg.connect(**parameters(CoreSettings.current()), autocommit=True)
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
