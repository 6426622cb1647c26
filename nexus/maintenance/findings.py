"""What a check is given."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import connection

from nexus.core.apps import database_objects
from nexus.core.database.sqlite.schema import absent
from nexus.core.database.store import store, write
from nexus.core.progress import Bar
from nexus.maintenance import store_file

SAMPLED = 10_000  # rows of each table, of a quick examination


@dataclass(frozen=True)
class Home:
    """The home and the store under examination."""

    path: Path
    database: Path
    moment: datetime


@dataclass(frozen=True)
class Examination(Home):
    """A home whose store could be opened; nothing is written but by what `repair` gives."""

    quick: bool = field(default=False, kw_only=True)

    def sample(self, table: str) -> str:
        """A table, or of a quick examination its newest rows, as SQL that comes after FROM."""
        return table

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query; each ? in it is one of the values."""
        raise NotImplementedError

    def value(self, sql: str, *values: Any) -> Any:
        """The first column of the first row; None without one."""
        found = self.rows(sql, *values)
        return found[0][0] if found else None

    def given_out(self, table: str) -> int:
        """The highest automatic id that a table ever gave out; 0 when it gave none."""
        raise NotImplementedError

    def tables(self) -> set[str]:
        """The names of the tables there are."""
        raise NotImplementedError

    def names(self) -> set[str]:
        """The names of everything in the schema: tables, indexes, triggers."""
        raise NotImplementedError

    def applied(self) -> set[tuple[str, str]]:
        """(app, name) of the migrations that were applied; empty for what is no store of Nexus."""
        known = "django_migrations" in self.tables()
        return {(app, name) for app, name in self.rows("SELECT app, name FROM django_migrations")} if known else set()

    def faulty_triggers(self) -> dict[str, Callable[[], None]]:
        """By name, the triggers that are missing or not as they should be, each with its mend."""
        raise NotImplementedError

    def repair(self, *statements: str) -> Callable[[], None]:
        """A mend: the statements in one transaction on a connection of its own."""
        raise NotImplementedError


@dataclass(frozen=True)
class FileExamination(Examination):
    """The store is an SQLite file, opened without Django: what is damaged can be looked at, too."""

    connection: sqlite3.Connection
    progress: Bar | None = None

    def sample(self, table: str) -> str:
        newest = f"(SELECT * FROM {table} ORDER BY rowid DESC LIMIT {SAMPLED}) AS {table}"  # noqa: S608
        return newest if self.quick else table

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, values).fetchall()

    def given_out(self, table: str) -> int:
        return int(self.value("SELECT max(seq) FROM sqlite_sequence WHERE name = ?", table) or 0)

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
    """The store is a PostgreSQL database."""

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql.replace("?", "%s"), values or None)
            found: list[tuple[Any, ...]] = cursor.fetchall()
        return found

    def given_out(self, table: str) -> int:
        model = next(model for model in apps.get_models() if model._meta.db_table == table)
        return store().given_out(model)

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
