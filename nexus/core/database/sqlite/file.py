"""The store's file, looked at past SQLite: what lies beside it, and whether SQLite may open it."""

from __future__ import annotations

import os
from functools import lru_cache
from io import FileIO
from pathlib import Path

from nexus.core.operations.errors import Code, NexusError

HEADER = b"SQLite format 3\0"  # how every SQLite file starts

_kept_open: dict[tuple[int, int], FileIO] = {}  # by device and inode


def refuse_damaged(database: Path) -> None:
    """Look at a store before SQLite does, which would take a lost log or an emptied file for a new store.

    Raises DB_ERROR for what is no file, for a file that is no SQLite database, and for one whose write-ahead log is
    gone. A missing file passes.
    """
    if not database.exists():
        return
    if not database.is_file():  # a pipe would never answer
        raise not_a_store(database)
    start = first_bytes(database, len(HEADER))
    if not start and beside(database, "-wal").exists():
        start = first_bytes(database, len(HEADER))  # again: who makes a store writes its header, then begins a log
        if not start:
            raise not_a_store(database)
    if start and start != HEADER:
        raise not_a_store(database)
    if log_is_missing(database):
        raise NexusError(
            Code.DB_ERROR,
            f"The write-ahead log {beside(database, '-wal').name} of {database} was removed, and with it the latest "
            "commits. Put it back; or accept the loss with `nexus doctor --fix`; or use `nexus restore`.",
            {"cause": "damaged"},
        )


def not_a_store(database: Path) -> NexusError:
    """The refusal of a file that holds something else, or nothing that could be told."""
    return NexusError(
        Code.DB_ERROR,
        f"{database} is not a Nexus store, or its beginning was overwritten. It was left as it is. "
        "Choose another --db-path, or run `nexus doctor`: it says what can be saved.",
        {"cause": "damaged"},
    )


def first_bytes(database: Path, count: int) -> bytes:
    """The start of a store's file, read past SQLite.

    The file stays open for good: on POSIX, closing it would drop every lock that SQLite holds on it in this process,
    and another process, believing itself the last, would remove the write-ahead log under our connections.
    """
    status = database.stat()
    inode = status.st_dev, status.st_ino
    if inode not in _kept_open:
        _kept_open[inode] = database.open("rb", buffering=0)
    return os.pread(_kept_open[inode].fileno(), count, 0)


def log_is_missing(database: Path) -> bool:
    """Whether the log's index is there without the log: SQLite makes the log first and removes it last."""
    index, log = beside(database, "-shm"), beside(database, "-wal")
    return index.exists() and not log.exists() and index.exists() and not log.exists()  # twice: one may just be closing


@lru_cache(maxsize=16)  # every transaction asks for the same
def beside(database: Path, suffix: str) -> Path:
    """The file next to the store that SQLite keeps under this suffix."""
    return database.with_name(database.name + suffix)
