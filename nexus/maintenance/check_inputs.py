"""The input of checks: the home, and the store under examination."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from django.db import connection

from nexus.core.apps import database_objects
from nexus.core.database.sqlite.schema import absent
from nexus.core.database.store import write
from nexus.core.progress import Bar
from nexus.maintenance import store_file


@dataclass(frozen=True)
class Home:
    """The home and the store under examination."""

    path: Path
    database: Path
    moment: datetime


@dataclass(frozen=True)
class Examination(Home):
    """A home whose store could be opened. Only the functions that `repair` returns write anything."""

    INDEX_COLUMNS: ClassVar[str]  # a query of the name of each index with each of its columns, in their order

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query; each ? in it stands for one of the values."""
        raise NotImplementedError

    def value(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first row; None if there is no row."""
        found = self.rows(sql, *values)
        return found[0][0] if found else None

    def tables(self) -> set[str]:
        """Return the names of the existing tables."""
        raise NotImplementedError

    def names(self) -> set[str]:
        """Return the names of everything in the schema: tables, indexes, triggers."""
        raise NotImplementedError

    def index_columns(self) -> dict[str, list[str | None]]:
        """Return the columns of each index by its name; None stands for an expression."""
        found: dict[str, list[str | None]] = {}
        for name, column in self.rows(self.INDEX_COLUMNS):
            found.setdefault(name, []).append(column)
        return found

    def applied(self) -> set[tuple[str, str]]:
        """Return (app, name) of the applied migrations; empty if this is not a Nexus store."""
        known = "django_migrations" in self.tables()
        return {(app, name) for app, name in self.rows("SELECT app, name FROM django_migrations")} if known else set()

    def faulty_triggers(self) -> dict[str, Callable[[], None]]:
        """Return a repair for each trigger that is missing or wrong, by name."""
        raise NotImplementedError

    def repair(self, *statements: str) -> Callable[[], None]:
        """Return a function that runs the statements in one transaction on a connection of its own."""
        raise NotImplementedError


@dataclass(frozen=True)
class FileExamination(Examination):
    """An examination of an SQLite file, opened without Django, so that a damaged one can be examined, too."""

    connection: sqlite3.Connection
    progress: Bar | None = None
    INDEX_COLUMNS = (
        "SELECT made.name, part.name FROM sqlite_master made, pragma_index_info(made.name) part"
        " WHERE made.type = 'index' ORDER BY made.name, part.seqno"
    )

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()

    def tables(self) -> set[str]:
        return {name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def names(self) -> set[str]:
        return {name for (name,) in self.rows("SELECT name FROM sqlite_master")}

    def faulty_triggers(self) -> dict[str, Callable[[], None]]:
        triggers = database_objects("sqlite")
        return {
            name: self.repair(f"DROP TRIGGER IF EXISTS {name}", triggers[name])
            for name in absent(self.connection, triggers)
        }

    def repair(self, *statements: str) -> Callable[[], None]:
        return partial(_execute, self.database, statements)


@dataclass(frozen=True)
class ServerExamination(Examination):
    """An examination of a PostgreSQL database."""

    INDEX_COLUMNS = (
        "SELECT relname, attname FROM pg_index JOIN pg_class made ON made.oid = indexrelid"
        " CROSS JOIN unnest(indkey) WITH ORDINALITY AS part(number, place)"
        " LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = number"
        " WHERE relnamespace = current_schema()::regnamespace ORDER BY relname, place"
    )

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql.replace("?", "%s"), values or None)
            found: list[tuple[Any, ...]] = cursor.fetchall()
        return found

    def tables(self) -> set[str]:
        return set(connection.introspection.table_names())

    def names(self) -> set[str]:
        relations = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace"
        triggers = "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
        return {name for query in (relations, triggers) for (name,) in self.rows(query)}

    def faulty_triggers(self) -> dict[str, Callable[[], None]]:
        from nexus.core.database.postgres import schema

        triggers = database_objects("postgresql")
        return {name: self.repair(triggers[name]) for name in schema.absent(self.rows(schema.TRIGGERS), triggers)}

    def repair(self, *statements: str) -> Callable[[], None]:
        return partial(_write, statements)


def _write(statements: tuple[str, ...]) -> None:
    with write(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def _execute(database: Path, statements: tuple[str, ...]) -> None:
    with closing(store_file.open_store(database)) as alone:
        alone.execute("BEGIN IMMEDIATE")
        for statement in statements:
            alone.execute(statement)
        alone.execute("COMMIT")
