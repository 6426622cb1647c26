"""Short reads on the event loop itself: passing one to a thread takes ten times as long."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from sqlite3 import connect  # not our own: what that turns into an error of the driver costs as much as the read
from typing import Any

from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection

from nexus.core.database.store_file import check

# A read that takes more than 10,000 instructions of SQLite's machine is left to a thread: so many take tenths of a
# millisecond, and count some thousand rows along an index.
INSTRUCTIONS, ROUNDS = 1000, 10
MOST_ROWS = 20  # as is one of more rows: each may hold long texts, which take time to be made into objects


class _Kept(threading.local):
    """A thread's connection for short reads."""

    connection: sqlite3.Connection | None = None
    rounds = 0  # that the read may still take


_kept = _Kept()


def look(sql: str, values: Sequence[Any]) -> list[Any]:
    """Return the rows of a short read: what any process has committed.

    It never waits, because a reader of a write-ahead log does not have to. Raises SynchronousOnlyOperation if it
    would have to, if it takes long, or if the file cannot be read; a thread that runs it then finds out why.
    """
    check()
    _kept.rounds = ROUNDS
    try:
        if _kept.connection is None:
            _kept.connection = connect(connection.settings_dict["NAME"], timeout=0, uri=True)
            _kept.connection.set_progress_handler(_takes_long, INSTRUCTIONS)
        with closing(_kept.connection.execute(sql, values)) as cursor:
            rows: list[Any] = cursor.fetchmany(MOST_ROWS + 1)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a damaged file's text in a message
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            _kept.connection = None
        raise SynchronousOnlyOperation("the store cannot be read at once") from None
    if len(rows) > MOST_ROWS:
        raise SynchronousOnlyOperation("the rows are many")
    return rows


def _takes_long() -> bool:
    _kept.rounds -= 1
    return _kept.rounds < 0
