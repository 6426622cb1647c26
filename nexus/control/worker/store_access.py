"""The worker's use of a store that may be away: the lock that makes it the only worker, and writes that are retried."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from django.db import DatabaseError, connection

from nexus.core.database.base import ExclusiveLock
from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError
from nexus.core.waiting import READERS, WRITERS, in_thread

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class ExclusiveRole:
    """The lock of the only process of its kind at the store, held until `retaken` returns False."""

    def __init__(self, kind: str, exclusive_lock: ExclusiveLock, waited: bool) -> None:
        self.kind, self.exclusive_lock = kind, exclusive_lock
        self.waited = waited  # until another process let go of the lock

    async def retaken(self) -> bool:
        """Return once the connection with the lock was lost: True if the lock was taken again, False if another process
        has it."""
        while await asyncio.to_thread(self.exclusive_lock.held):
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.to_thread(self.exclusive_lock.release)
        exclusive_lock = await _acquire(self.kind)
        if exclusive_lock is None:
            log.warning("The pool's lock was lost with the connection to the store, and another server took it.")
            return False
        self.exclusive_lock = exclusive_lock
        return True


async def await_exclusive_role(kind: str, standing_by: str) -> ExclusiveRole:
    """Return once this process is the only one of its kind at the store; log `standing_by`, once, while another is."""
    waited = False
    while (exclusive_lock := await _acquire(kind)) is None:
        if not waited:
            log.warning(standing_by)
        waited = True
        await asyncio.sleep(LOOK_SECONDS)
    return ExclusiveRole(kind, exclusive_lock, waited)


async def _acquire(kind: str) -> ExclusiveLock | None:
    """Return the lock of a kind; None while another process has it. Retries until the store answers, and says once why
    it does not."""
    said = False
    while True:
        try:
            return await in_thread(READERS, lambda: store().exclusive_lock(kind))
        except (DatabaseError, OSError) as error:
            if not said:
                log.warning("The pool's lock could not be taken (%s); it is tried again.", error)
            said = True
        await asyncio.sleep(LOOK_SECONDS)


T = TypeVar("T")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two tries


async def stored(
    write: Callable[[], T], seconds: float, *, twice: bool = False, pool: ThreadPoolExecutor = WRITERS
) -> T:
    """Run `write` on a thread of `pool` and return its result; retry for so many seconds while the store is busy, full
    or away. Raises the last error.

    If the connection is lost during a commit, nobody knows whether the commit took effect. It is retried only with
    `twice`: storing it twice does no harm.
    """
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, SHORTEST_PAUSE
    while True:
        try:
            return await in_thread(pool, partial(_on_sound_connection, write))
        except DatabaseError:
            if loop.time() >= deadline:
                raise
        except NexusError as error:
            if loop.time() >= deadline or not twice or error.code != Code.DB_ERROR:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def _on_sound_connection(write: Callable[[], T]) -> T:
    try:
        return write()
    except DatabaseError:
        connection.close()  # the next attempt starts on a new one
        raise
