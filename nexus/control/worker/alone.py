"""An exclusive lock for a kind of process: a store has one at a time; others stand by."""

from __future__ import annotations

import asyncio
import logging

from django.db import DatabaseError

from nexus.core.database.base import ExclusiveLock
from nexus.core.database.store import store
from nexus.core.waiting import READERS, in_thread

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class Alone:
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
        exclusive_lock = await _taken(self.kind)
        if exclusive_lock is None:
            log.warning("The pool's lock was lost with the connection to the store, and another server took it.")
            return False
        self.exclusive_lock = exclusive_lock
        return True


async def alone(kind: str, standing_by: str) -> Alone:
    """Return once this process is the only one of its kind at the store; log `standing_by`, once, while another is."""
    waited = False
    while (exclusive_lock := await _taken(kind)) is None:
        if not waited:
            log.warning(standing_by)
        waited = True
        await asyncio.sleep(LOOK_SECONDS)
    return Alone(kind, exclusive_lock, waited)


async def _taken(kind: str) -> ExclusiveLock | None:
    """Return the lock of a kind; None while another process has it. Retries until the store answers."""
    while True:
        try:
            return await in_thread(READERS, lambda: store().exclusive_lock(kind))
        except (DatabaseError, OSError) as error:
            log.warning("The pool's lock could not be taken (%s); it is tried again.", error)
        await asyncio.sleep(LOOK_SECONDS)
