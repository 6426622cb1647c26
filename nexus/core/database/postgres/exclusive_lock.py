"""Who is the only one of its kind: an advisory lock of a connection that stays open for that."""

from __future__ import annotations

import contextlib
import zlib
from typing import Any

import psycopg
from django.db import connection

from nexus.core.config import CoreSettings
from nexus.core.database.postgres.address import parameters

KINDS = 0x4E787574  # the first half of the locks' names; the writers' lock has a name of one part


class ExclusiveLock:
    """The lock, for as long as its connection lives."""

    def __init__(self, holder: psycopg.Connection[Any]) -> None:
        self._holder = holder

    def held(self) -> bool:
        """Asks the server, which lets go of the lock when the connection ends."""
        try:
            self._holder.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def release(self) -> None:
        """Let go before the connection ends: that the server notices a moment later, and another would be refused."""
        with contextlib.suppress(psycopg.Error):  # it is lost, and the lock with it
            self._holder.execute("SELECT pg_advisory_unlock_all()")
        self._holder.close()


def exclusive_lock(kind: str) -> ExclusiveLock | None:
    """Become the only process of a kind over the store; None while another is."""
    with connection.wrap_database_errors:
        holder = psycopg.connect(**parameters(CoreSettings.current()), autocommit=True)
        try:
            second = zlib.crc32(kind.encode()) >> 1
            got = holder.execute("SELECT pg_try_advisory_lock(%s, %s)", [KINDS, second]).fetchone()
        except BaseException:
            holder.close()
            raise
    if got is None or not got[0]:
        holder.close()
        return None
    return ExclusiveLock(holder)
