"""Checks of the store as a file, of its home and of its users. None needs a readable store."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nexus.core import instance
from nexus.core.contributions import Finding
from nexus.core.database.sqlite.errors import HEADER, beside, first_bytes, log_is_missing
from nexus.core.files import network_kind
from nexus.core.operations.errors import NexusError
from nexus.maintenance import store_file
from nexus.maintenance.backup import checked
from nexus.maintenance.findings import Home

LOG_LIMIT = 64 << 20  # bytes; a healthy log is checkpointed every few megabytes
ROOM_LIMIT = 64 << 20  # bytes
ABANDONED_SECONDS = 3600  # a partial file that has not changed for so long is abandoned
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def permissions(home: Home) -> Iterator[Finding]:
    """Check that the home and its files belong to one user, and that nobody else can read them."""
    directories = [home.path, home.path / "backups"]  # the home's mode protects other directories
    files = {path for directory in directories for path in directory.glob("*") if path.is_file()}
    files |= {home.database, *(beside(home.database, suffix) for suffix in ("-wal", "-shm"))}
    for path in sorted(path for path in {*directories, *files} if path.exists() and not path.is_symlink()):
        status = path.stat()
        if status.st_mode & OTHERS:
            wanted = 0o700 if path.is_dir() else 0o600
            yield Finding(
                f"{path} may be used by others than its owner (mode {stat.S_IMODE(status.st_mode):04o}).",
                f"Whoever reads the store reads every message. Run `chmod {wanted:o} {path}`.",
                partial(path.chmod, wanted),
                f"the mode was set to {wanted:o}",
            )
        if status.st_uid != os.geteuid():
            yield Finding(
                f"{path} belongs to another user (uid {status.st_uid}).",
                "Run Nexus as that user, or give the file to the user that runs it with `chown`.",
            )
        if not os.access(path, os.W_OK):
            yield Finding(
                f"{path} cannot be written by this user.",
                "Nexus can neither start nor write. Make it writable, or look why its disk is mounted read-only.",
            )


def room(home: Home) -> Iterator[Finding]:
    """Check that the disk has space left."""
    free = shutil.disk_usage(home.database.parent).free
    if free < ROOM_LIMIT:
        yield Finding(
            f"Only {free >> 20} MiB are free on the disk of the store.",
            "Writes fail once it is full, and shrinking the store takes room too. Move old backups elsewhere, or "
            "free space another way; then `nexus prune --vacuum`.",
        )


def network(home: Home) -> Iterator[Finding]:
    """Check that the store is on a local disk."""
    if kind := network_kind(home.database):
        yield Finding(
            f"{home.database} is on a network file system ({kind}), where SQLite's locks do not hold.",
            "Processes on several machines damage it. Stop them, move the home to a local disk, or the store to "
            "PostgreSQL with `nexus migrate-store`.",
        )


def servers(home: Home) -> Iterator[Finding]:
    """Check that one server at a time serves the store."""
    pids = {pid for pid, command in store_file.holders(home.database).items() if " serve" in command}
    holder = instance.running(home.path)
    if holder:
        pids.add(holder.pid)
    if len(pids) > 1:
        yield Finding(
            f"{len(pids)} servers use this store (processes {', '.join(map(str, sorted(pids)))}).",
            "The lock of a home admits one; another home with the same --db-path got round it. Stop all but one.",
        )


def log_size(home: Home) -> Iterator[Finding]:
    """Check that the write-ahead log is written back into the store from time to time."""
    log = beside(home.database, "-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > LOG_LIMIT:
        yield Finding(
            f"The write-ahead log has {size >> 20} MiB.",
            "Something keeps reading an old state, so that the log cannot be written back; every read gets slower. "
            "Look for a process that hangs, and restart it.",
            partial(_write_back, home.database),
            "the log was written back into the store",
        )


def leftovers(home: Home) -> Iterator[Finding]:
    """Check that no killed backup or restore left a half-written file."""
    for path in sorted([*home.path.glob(".*.partial*"), *home.path.glob("backups/.*.partial*")]):
        if home.moment.timestamp() - path.stat().st_mtime > ABANDONED_SECONDS:
            yield Finding(
                f"{path} is left of a backup or restore that was killed.",
                "Nothing uses it. Delete it.",
                partial(path.unlink, missing_ok=True),
                "it was deleted",
            )


def lost_log(home: Home) -> Iterator[Finding]:
    """Check that the write-ahead log of a store that is in use, or was not closed, lies beside it."""
    if log_is_missing(home.database):
        index = beside(home.database, "-shm")
        yield Finding(
            "The write-ahead log was removed while its index is still there: the commits in it are missing.",
            "Put the file ending in -wal back if you have it. Otherwise restore a backup, or go on with the store as "
            "of its last checkpoint.",
            None if store_file.holders(home.database) else index.unlink,
            "the index of the lost log was removed, so that Nexus starts with the state before it",
        )


def header(home: Home) -> Iterator[Finding]:
    """Check that the file is an SQLite database, and as long as its header says."""
    size, expected = home.database.stat().st_size, expected_size(home.database)
    if not size:
        yield Finding(
            "The file is empty.",
            "It is a store that was never written, or one cut to nothing. Delete it to start afresh, or restore a "
            "backup.",
        )
    elif expected is None:
        yield Finding(
            "The file is not an SQLite database, or its beginning was overwritten.",
            "If it never was a store, point --db-path at the right file. If it was, restore a backup.",
        )
    elif size < expected:
        yield Finding(
            f"The file was cut short: {size} bytes of {expected} are left.",
            "The rest is lost. Restore a backup.",
        )


def expected_size(database: Path) -> int | None:
    """Return the minimum size of the file in bytes; None if it is not SQLite's."""
    start = first_bytes(database, 100)
    if not start.startswith(HEADER):
        return None
    if beside(database, "-wal").exists():
        return 0  # the end may be in the log
    page = int.from_bytes(start[16:18], "big")
    return int.from_bytes(start[28:32], "big") * (65536 if page == 1 else page)


def newest_backup(home: Home) -> str:
    """Return a sentence about the newest valid backup in the home, to end an advice with."""
    for path in sorted(home.path.glob("backups/*.db"), key=lambda path: path.stat().st_mtime, reverse=True):
        with contextlib.suppress(NexusError, OSError, sqlite3.Error):
            checked(path)
            return f" The newest whole one is {path}: `nexus restore {path}`."
    return " There is none in the home."


def _write_back(database: Path) -> None:
    with contextlib.closing(store_file.open_store(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
