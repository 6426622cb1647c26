"""Python's sqlite3 over a file that may be damaged. Standard library alone: a hook starts with it, before Django."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

# What SQLite says, without a code, of a row's text that is no UTF-8, and of the header's number of a format.
DAMAGE = ("Could not decode to UTF-8", "unsupported file format")


@contextmanager
def decoding() -> Iterator[None]:
    """Turn errors that show damage but carry no code into the driver's own error of a damaged file.

    SQLite quotes the schema's text in its messages, and the driver decodes those strictly: one damaged byte there
    raised UnicodeDecodeError, which is not an sqlite3.Error.
    """
    try:
        yield
    except UnicodeDecodeError:
        raise _damaged() from None
    except sqlite3.OperationalError as error:
        if shows_damage(error):
            raise _damaged() from None
        raise


def shows_damage(error: BaseException | None) -> bool:
    """Return whether an error without a code shows that the file is damaged."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith(DAMAGE)


class Cursor(sqlite3.Cursor):
    def execute(self, sql: str, parameters: Any = (), /) -> Self:
        with decoding():
            return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> Self:
        with decoding():
            return super().executemany(sql, parameters)

    def fetchone(self) -> Any:
        with decoding():
            return super().fetchone()

    def fetchmany(self, *arguments: Any) -> list[Any]:
        with decoding():
            return super().fetchmany(*arguments)

    def fetchall(self) -> list[Any]:
        with decoding():
            return super().fetchall()

    def __next__(self) -> Any:
        with decoding():
            return super().__next__()


class Connection(sqlite3.Connection):
    """A connection that raises sqlite3.DatabaseError (SQLITE_CORRUPT) for a text of a damaged file, wherever it is
    read."""

    def cursor(self, factory: Any = Cursor) -> Any:
        return super().cursor(factory)

    def execute(self, *arguments: Any) -> Any:
        return self.cursor().execute(*arguments)  # the driver's own makes a cursor of its own class

    def executemany(self, *arguments: Any) -> Any:
        return self.cursor().executemany(*arguments)

    def backup(self, *arguments: Any, **options: Any) -> None:
        with decoding():
            super().backup(*arguments, **options)


def connect(database: Any, **options: Any) -> Connection:
    """Connect like `sqlite3.connect`, and return a `Connection`."""
    with decoding():
        return sqlite3.connect(database, factory=Connection, **options)


def _damaged() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("the file is damaged")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    error.sqlite_errorname = "SQLITE_CORRUPT"
    return error
