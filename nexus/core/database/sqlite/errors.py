"""The meaning of SQLite's errors, and checks of the store's file before SQLite opens it.

A failure says whether the same call may be sent again, and what to do if not.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Mapping
from functools import lru_cache
from io import FileIO
from pathlib import Path

from nexus.core.config import CoreSettings
from nexus.core.database import store_file
from nexus.core.operations.errors import Code, NexusError
from nexus.core.sqlite import shows_damage

FULL_BYTES = 1 << 20  # a disk with less room than this is full, whatever SQLite calls its error
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
DAMAGED = "The store is damaged. Stop Nexus's processes and run `nexus doctor`: it names the newest whole backup."
READ_ONLY = "This process may not write the store or its directory. Make both writable for the user it runs as."
CAUSES: Mapping[int, tuple[str, str]] = {
    sqlite3.SQLITE_CORRUPT: ("damaged", DAMAGED),
    sqlite3.SQLITE_NOTADB: ("damaged", DAMAGED),
    sqlite3.SQLITE_FULL: (
        "disk_full",
        "The disk of the store is full; nothing of this call was written. Free space, then send it again.",
    ),
    sqlite3.SQLITE_READONLY: ("read_only", READ_ONLY),
    sqlite3.SQLITE_PERM: ("read_only", READ_ONLY),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot_open",
        "The store cannot be opened: its directory is missing, not writable, or this process has too many open files.",
    ),
    sqlite3.SQLITE_IOERR: (
        "io_error",
        "The disk refused a read or a write of the store; nothing of this call was written. "
        "Look at the disk's state, quotas and file size limits, then run `nexus doctor`.",
    ),
}


def is_busy(error: Exception) -> bool:
    """Return whether another connection's lock is the only cause of an error."""
    return _primary_code(error) in BUSY


def why_unreadable(error: sqlite3.Error, database: Path, owner: str) -> str:
    """Return why another program's store cannot be read, and what to do."""
    match _primary_code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return f"{database} is locked by a running {owner}. Stop it, then try again."
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY:
            return (
                f"{database} was not closed cleanly, and its directory cannot be written. Copy the directory to a disk "
                "that can, and import the copy."
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return f"{database} is damaged, or cut off. Import a backup of it."
    return f"{database} cannot be read as a store of {owner}."


def failure(error: Exception) -> NexusError | None:
    """Return the DB_ERROR for an error of SQLite, from Django or direct, with its cause and what to do; None when
    unknown.

    `details.retryable` is true if the same call may succeed in a moment; otherwise there is `details.cause`.
    """
    if is_busy(error):
        return NexusError(
            Code.DB_ERROR,
            "The store is busy with another writer. Send the same call again in a second or two.",
            {"retryable": True},
        )
    code = _primary_code(error)
    if code == sqlite3.SQLITE_CANTOPEN and not store_file.is_ours():
        return store_file.moved_error()
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _disk_is_full():
        code = sqlite3.SQLITE_FULL
    if code not in CAUSES:
        return None
    cause, message = CAUSES[code]
    return NexusError(Code.DB_ERROR, message, {"cause": cause})


def _primary_code(error: Exception) -> int:
    source = error if isinstance(error, sqlite3.Error) else error.__cause__
    if shows_damage(source):
        return sqlite3.SQLITE_CORRUPT
    return int(getattr(source, "sqlite_errorcode", 0)) & 0xFF


def _disk_is_full() -> bool:
    try:
        return shutil.disk_usage(CoreSettings.current().database.parent).free < FULL_BYTES
    except OSError:
        return False


HEADER = b"SQLite format 3\0"  # how every SQLite file starts

_kept_open: dict[tuple[int, int], FileIO] = {}  # by device and inode


def refuse_damaged(database: Path) -> None:
    """Check a store before SQLite opens it, because SQLite would take a lost log or an emptied file for a new store.

    Raises DB_ERROR for what is not a file, for a file that is not an SQLite database, and for one whose write-ahead
    log is missing. A missing file passes.
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
    """Return the error for a file that holds something else, or whose content cannot be determined."""
    return NexusError(
        Code.DB_ERROR,
        f"{database} is not a Nexus store, or its beginning was overwritten. It was left as it is. "
        "Choose another --db-path, or run `nexus doctor`: it says what helps.",
        {"cause": "damaged"},
    )


def first_bytes(database: Path, count: int) -> bytes:
    """Return the start of a store's file, read without SQLite.

    The file stays open for good: on POSIX, closing it would drop every lock that SQLite holds on it in this process,
    and another process, believing itself the last, would remove the write-ahead log under our connections.
    """
    status = database.stat()
    inode = status.st_dev, status.st_ino
    if inode not in _kept_open:
        _kept_open[inode] = database.open("rb", buffering=0)
    return os.pread(_kept_open[inode].fileno(), count, 0)


def log_is_missing(database: Path) -> bool:
    """Return whether the log's index exists without the log: SQLite creates the log first and removes it last."""
    index, log = beside(database, "-shm"), beside(database, "-wal")
    return index.exists() and not log.exists() and index.exists() and not log.exists()  # twice: one may just be closing


@lru_cache(maxsize=16)  # every transaction asks for the same
def beside(database: Path, suffix: str) -> Path:
    """Return the path of SQLite's file with this suffix, such as `-wal`, for a store."""
    return database.with_name(database.name + suffix)
