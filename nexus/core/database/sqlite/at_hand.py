"""One look at an index, on an event loop itself: to hand it to a thread takes ten times as long."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection

from nexus.core.database.place import check
from nexus.core.sqlite import Connection, connect


class _Kept(threading.local):
    """A thread's connection for such looks."""

    connection: Connection | None = None


_kept = _Kept()


def look(sql: str, values: Sequence[Any]) -> list[Any]:
    """The rows of a read that takes no longer than a look at an index: what is committed, by whichever process.

    It waits for nobody: a reader of a write-ahead log need not. Raises SynchronousOnlyOperation where it would have to,
    or where the file cannot be read; a thread that asks then finds out why.
    """
    check()
    try:
        if _kept.connection is None:
            _kept.connection = connect(connection.settings_dict["NAME"], timeout=0, uri=True)
        rows: list[Any] = _kept.connection.execute(sql, values).fetchall()
    except sqlite3.Error:
        _kept.connection = None
        raise SynchronousOnlyOperation("the store cannot be read at once") from None
    return rows
