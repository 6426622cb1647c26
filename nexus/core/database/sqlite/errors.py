"""What an error of SQLite means: whether the same call may be sent again, and what to do if not."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping

from nexus.core.config import CoreSettings
from nexus.core.database import place
from nexus.core.operations.errors import Code, NexusError
from nexus.core.sqlite import tells_of_damage

FULL_BYTES = 1 << 20  # a disk with less room than this is full, whatever SQLite calls its error
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
DAMAGED = "The store is damaged. Stop Nexus's processes and run `nexus doctor`: it says what can be saved, and how."
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
    """Whether another connection's lock is all that is wrong."""
    return _primary_code(error) in BUSY


def failure(error: Exception) -> NexusError | None:
    """The DB_ERROR for an error of SQLite, from Django or direct, with its cause and what to do; None when unknown.

    `details.retryable` is there, and true, where the same call may succeed in a moment; else `details.cause`.
    """
    if is_busy(error):
        return NexusError(
            Code.DB_ERROR,
            "The store is busy with another writer. Send the same call again in a second or two.",
            {"retryable": True},
        )
    code = _primary_code(error)
    if code == sqlite3.SQLITE_CANTOPEN and not place.is_ours():
        return place.moved_error()
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _disk_is_full():
        code = sqlite3.SQLITE_FULL
    if code not in CAUSES:
        return None
    cause, message = CAUSES[code]
    return NexusError(Code.DB_ERROR, message, {"cause": cause})


def _primary_code(error: Exception) -> int:
    source = error if isinstance(error, sqlite3.Error) else error.__cause__
    if tells_of_damage(source):
        return sqlite3.SQLITE_CORRUPT
    return int(getattr(source, "sqlite_errorcode", 0)) & 0xFF


def _disk_is_full() -> bool:
    try:
        return shutil.disk_usage(CoreSettings.current().database.parent).free < FULL_BYTES
    except OSError:
        return False
