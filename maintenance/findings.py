"""What a check is given."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from maintenance import store_file


@dataclass(frozen=True)
class Home:
    """The home and the store under examination."""

    path: Path
    database: Path
    moment: datetime


@dataclass(frozen=True)
class Examination(Home):
    """A home whose store could be opened; the connection only reads."""

    connection: sqlite3.Connection

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return self.connection.execute(sql, values).fetchall()

    def value(self, sql: str, *values: Any) -> Any:
        """The first column of the first row; None without one."""
        found = self.rows(sql, *values)
        return found[0][0] if found else None

    def given_out(self, table: str) -> int:
        """The highest automatic id that a table ever gave out; 0 when it gave none."""
        return int(self.value("SELECT max(seq) FROM sqlite_sequence WHERE name = ?", table) or 0)

    def tables(self) -> set[str]:
        """The names of the tables there are."""
        return {name for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def repair(self, *statements: str) -> Callable[[], None]:
        """A mend: the statements in one transaction on a connection of its own."""
        return partial(_execute, self.database, statements)


def _execute(database: Path, statements: tuple[str, ...]) -> None:
    with closing(store_file.open_store(database)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        for statement in statements:
            connection.execute(statement)
        connection.execute("COMMIT")
