"""The watch for commits: `PRAGMA data_version` tells of another connection's, the kernel that one is being written."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sqlite3
import sys
import time

from django.db import connection
from django.db.models import Model

from nexus.core.database import place
from nexus.core.sqlite import connect

PAUSE_SECONDS = 0.015  # between two looks, each a read of shared memory of some 10 µs
NEAR_PAUSE_SECONDS = 0.001  # while a commit is near: it was written, and counts once the disk has it
NEAR_SECONDS = 0.05  # how long one is near that nothing came of

IN_MODIFY = 0x2  # from <sys/inotify.h>: a file was written to
NOTICES = 65536  # bytes; a notice of one file takes 16, and those that are alike are merged


class Watch:
    """Looks for rows of a model that another connection committed, on a connection of its own."""

    def __init__(self, model: type[Model]) -> None:
        options, key = model._meta, model._meta.pk
        assert key is not None
        self._newest = f"SELECT max({key.column}) FROM {options.db_table}"  # noqa: S608  # names from the code
        with connection.wrap_database_errors, place.opening():
            self._probe = connect(connection.settings_dict["NAME"], timeout=0, check_same_thread=False, uri=True)
        self._version = self._read("PRAGMA data_version")
        self._near_until = 0.0
        self.descriptor = _notices_of(self._wal())

    @property
    def pause(self) -> float:
        return NEAR_PAUSE_SECONDS if time.monotonic() < self._near_until else PAUSE_SECONDS

    def has_news(self, seen: int) -> bool:
        """Whether there may be rows with a key above `seen`; what cannot be read counts as one."""
        before, self._version = self._version, self._read("PRAGMA data_version")
        if self._version is not None and self._version == before:
            return False
        self._near_until = 0.0
        newest = self._read(self._newest)
        return newest is None or newest > seen

    def drain(self) -> None:
        self._near_until = time.monotonic() + NEAR_SECONDS
        if self.descriptor is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self.descriptor, NOTICES)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
        self._probe.close()

    def _read(self, sql: str) -> int | None:
        try:
            return int(self._probe.execute(sql).fetchone()[0] or 0)
        except sqlite3.DatabaseError:
            return None

    def _wal(self) -> str:
        """The path of the file that every commit is written to. It stays while a connection is open."""
        return str(self._probe.execute("PRAGMA database_list").fetchone()[2]) + "-wal"


def _notices_of(path: str) -> int | None:
    """A descriptor of the kernel's that is readable once the file was written to; None where there is no such thing.

    Only Linux has one. Elsewhere, and where the kernel gives no more of them, the watch is asked at intervals alone.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return int(descriptor)


def watch(model: type[Model]) -> Watch:
    """Begin to watch for commits that add rows to `model`."""
    return Watch(model)
