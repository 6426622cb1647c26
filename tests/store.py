"""The store as tests meddle with it, on either database: its errors, its lock, its triggers."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Literal

from django.conf import settings
from django.db import OperationalError, connection

from nexus.core.database.migrations import postgres_trigger

Failure = Literal["busy", "locked", "damaged", "full", "away"]


def failing(kind: Failure) -> OperationalError:
    """What Django raises for an error of the database."""
    error = OperationalError("made by the test")
    if connection.vendor == "sqlite":
        codes = {
            "busy": sqlite3.SQLITE_BUSY,
            "locked": sqlite3.SQLITE_LOCKED,
            "damaged": sqlite3.SQLITE_CORRUPT,
            "full": sqlite3.SQLITE_FULL,
            "away": sqlite3.SQLITE_CANTOPEN,
        }
        cause = sqlite3.OperationalError("made by the test")
        cause.sqlite_errorcode = codes[kind]
        error.__cause__ = cause
    else:
        from psycopg import errors

        states = {
            "busy": errors.LockNotAvailable,
            "locked": errors.DeadlockDetected,
            "damaged": errors.DataCorrupted,
            "full": errors.DiskFull,
            "away": errors.CannotConnectNow,
        }
        error.__cause__ = states[kind]("made by the test")
    return error


def steps(act: Callable[[], object]) -> int:
    """How many tens of steps SQLite takes for an act, once what is done only once is done."""
    act()
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.connection.set_progress_handler(count, 10)
    try:
        act()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return taken


def plans(act: Callable[[], object]) -> list[str]:
    """How SQLite reads for each query of an act, a line each."""
    asked: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        asked.append((sql, parameters))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(note):
        act()
    with connection.cursor() as cursor:
        rows = [cursor.execute(f"EXPLAIN QUERY PLAN {sql}", given).fetchall() for sql, given in asked if "FROM" in sql]
    return [" / ".join(row[3] for row in plan) for plan in rows]


@contextmanager
def held() -> Iterator[None]:
    """Inside, another process's connection writes: nobody else can."""
    if connection.vendor == "sqlite":
        with closing(sqlite3.connect(settings.NEXUS.database, isolation_level=None)) as writer:
            writer.execute("BEGIN IMMEDIATE")
            yield
            writer.execute("ROLLBACK")
    else:
        import psycopg

        from nexus.core.database.postgres.store import WRITERS_LOCK

        with psycopg.connect(str(settings.NEXUS.database_url)) as writer:
            writer.execute("SELECT pg_advisory_xact_lock(%s)", [WRITERS_LOCK])
            yield


def triggers(*tables: str) -> set[str]:
    """The triggers on these tables; without any on all."""
    of_sqlite = "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'"
    of_postgresql = """
        SELECT tgname, relname FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
        WHERE NOT tgisinternal AND tgparentid = 0
    """
    with connection.cursor() as cursor:
        cursor.execute(of_sqlite if connection.vendor == "sqlite" else of_postgresql)
        return {name for name, table in cursor.fetchall() if not tables or table in tables}


def drop_trigger(name: str, table: str) -> None:
    """As if it had never been made."""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER {name}" + ("" if connection.vendor == "sqlite" else f" ON {table}"))


@contextmanager
def broken(table: str, verb: str = "INSERT") -> Iterator[None]:
    """Inside, every such change of a table fails."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"CREATE TRIGGER broken BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, 'broken'); END")
        else:
            cursor.execute(postgres_trigger("broken", f"BEFORE {verb} ON {table}", "RAISE EXCEPTION 'broken';"))
    yield
    drop_trigger("broken", table)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("DROP FUNCTION broken()")  # else it is in the schema that later tests compare
