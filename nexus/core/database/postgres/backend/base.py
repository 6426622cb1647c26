"""Django's backend for PostgreSQL, with these changes: JSON keeps its text, because exports promise the order of keys;
the pool recovers at once from dead connections; what ends a transaction goes to the server together."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, DatabaseError
from django.db.backends.postgresql import base, operations
from django.db.models import Model
from django.db.utils import DatabaseErrorWrapper
from django.utils.functional import cached_property
from psycopg import OperationalError
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from nexus.core.database.base import Insertion

LOG_LOCK = 0x4E787576  # the advisory lock of who appends to the log beside others


class DatabaseOperations(operations.DatabaseOperations):
    """Operations that store JSON as text, as on SQLite; no SQL here looks into it."""

    def adapt_json_value(self, value: Any, encoder: type[json.JSONEncoder] | None) -> str:
        return json.dumps(value, cls=encoder)


class ErrorWrapper(DatabaseErrorWrapper):
    """Django's, which leaves a server that takes no writes: another may have become the primary at the same address,
    while connections to the former one last."""

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        pool = self.wrapper.pool  # type: ignore[attr-defined]  # the stubs leave it out
        if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) and pool:
            pool.drain()
        super().__exit__(kind, error, traceback)


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection, and what its transaction has yet to send.

    In a transaction that runs beside others, rows of the log wait for the commit: the lock that orders them, they, the
    notification and COMMIT are sent at once, so that the lock is held for a commit and not for round trips.
    """

    data_types = {**base.DatabaseWrapper.data_types, "JSONField": "text"}
    data_type_check_constraints = {
        **base.DatabaseWrapper.data_type_check_constraints,
        "JSONField": '("%(column)s"::json IS NOT NULL OR "%(column)s" IS NULL)',  # the cast refuses what is none
    }
    ops_class = DatabaseOperations

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.beside: frozenset[int] | None = None  # locks of the running transaction, if others run beside it
        self.notification: tuple[str, list[Any]] | None = None  # a statement that goes with COMMIT
        self.rows: list[tuple[Model, Insertion]] = []  # that are inserted with COMMIT
        # How many rows, and which locks, by savepoint.
        self._before: dict[str | None, tuple[int, frozenset[int] | None]] = {}
        self._pipeline: AbstractContextManager[psycopg.Pipeline] | None = None
        self._batches = 0  # that are being filled

    @cached_property
    def wrap_database_errors(self) -> ErrorWrapper:
        return ErrorWrapper(self)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection that works. A server that restarted has ended all idle ones, and the pool would try them
        with growing pauses. A look at the socket shows an end without a round trip."""
        connection = super().get_new_connection(conn_params)
        if self.pool is None or _is_quiet(connection):
            return connection
        try:
            ConnectionPool.check_connection(connection)
        except OperationalError:
            self.pool.putconn(connection)
            self.pool.drain()
            connection = super().get_new_connection(conn_params)
        return connection

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Let the block's statements wait for the next one that needs an answer, in a transaction even for COMMIT."""
        self._open()
        self._batches += 1
        try:
            yield
        finally:
            self._batches -= 1
        if not self.in_atomic_block:
            self.settle()

    def _open(self) -> None:
        self.ensure_connection()
        if self._pipeline is None:
            with self.wrap_database_errors:
                pipeline = self.connection.pipeline()
                pipeline.__enter__()
                self._pipeline = pipeline

    def set_autocommit(self, autocommit: bool, force_begin_transaction_with_broken_autocommit: bool = False) -> None:
        """Begin or end a transaction. BEGIN waits for the first statement: psycopg, which begins transactions else,
        waits for its answer."""
        if autocommit or not force_begin_transaction_with_broken_autocommit:
            super().set_autocommit(autocommit, force_begin_transaction_with_broken_autocommit)
            return
        self.validate_no_atomic_block()
        self.close_if_health_check_failed()
        try:
            self._open()
            with self.wrap_database_errors:
                self.connection.execute("BEGIN")
        except DatabaseError:
            self.close()  # it ended while nobody used it: the next transaction gets another
            raise
        self.autocommit = False

    def settle(self) -> None:
        """Send what earlier batches left, and raise the error of the first statement that failed."""
        if self._pipeline is not None and not self._batches:
            pipeline, self._pipeline = self._pipeline, None
            with self.wrap_database_errors:
                pipeline.__exit__(None, None, None)

    def insert_rows(self) -> None:
        """Insert the rows of the log now: until it ends, no other transaction appends."""
        with self.batch():
            sent = self._send_rows()
        self.settle()
        _number(sent)

    def cursor(self) -> Any:
        self.settle()
        return super().cursor()

    def chunked_cursor(self) -> Any:
        self.settle()
        return super().chunked_cursor()

    def savepoint(self) -> str | None:
        sid = super().savepoint()
        self._before[sid] = len(self.rows), self.beside
        return sid

    def savepoint_rollback(self, sid: str) -> None:
        with suppress(DatabaseError):  # it is what is rolled back
            self.settle()
        super().savepoint_rollback(sid)
        rows, self.beside = self._before[sid]  # the server has released the locks that came after it
        del self.rows[rows:]

    def commit(self) -> None:
        sent: list[tuple[Model, str, Any]] = []
        if self.connection is not None and (self.rows or self.notification or self._pipeline):
            if self.connection.info.transaction_status == TransactionStatus.IDLE:
                self.settle()  # BEGIN alone: psycopg commits what it knows to have begun
            with self.batch():
                with self.wrap_database_errors:
                    sent = self._send_rows()
                    if self.notification:
                        self.connection.execute(*self.notification)
                super().commit()
            self.settle()
        else:
            super().commit()
        _number(sent)
        self._forget()

    def _send_rows(self) -> list[tuple[Model, str, Any]]:
        """Send the rows that wait; return each with its key's attribute and the cursor that has the key."""
        rows, self.rows = self.rows, []
        sent = []
        if rows:
            self.connection.execute("SELECT pg_advisory_xact_lock(%s)", [LOG_LOCK])
        for row, (sql, values, key) in rows:
            sent.append((row, key, self.connection.execute(sql, values)))
        return sent

    def is_usable(self) -> bool:
        try:
            self.settle()
        except DatabaseError:
            return False
        return bool(super().is_usable())

    def rollback(self) -> None:
        with suppress(DatabaseError):  # it is what is rolled back
            self.settle()
        self._forget()
        super().rollback()

    def close(self) -> None:
        with suppress(DatabaseError):
            self.settle()
        self._forget()
        if self.pool and self.connection is not None and self.connection.broken:
            self.pool.drain()  # what ended this one has probably ended all
        super().close()

    def _forget(self) -> None:
        self.beside = self.notification = None
        self.rows, self._before = [], {}


def _number(sent: list[tuple[Model, str, Any]]) -> None:
    """Set the keys of rows that were inserted."""
    for row, key, cursor in sent:
        setattr(row, key, cursor.fetchone()[0])
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def _is_quiet(connection: psycopg.Connection[Any]) -> bool:
    """Return whether nothing came from the server since the last answer: its end, or its reason for one, would have."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return not poll.poll(0)
