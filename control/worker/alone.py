"""Of some kinds of process a store has one at a time; another stands by."""

from __future__ import annotations

import asyncio
import logging

from django.db import DatabaseError

from core.database import store
from core.database.base import Sole
from core.waiting import READERS, in_thread

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0


class Alone:
    """That this process is the only one of its kind at the store, from when it became so until `lost`."""

    def __init__(self, kind: str, sole: Sole, waited: bool) -> None:
        self.kind, self.sole = kind, sole
        self.waited = waited  # for another

    async def lost(self) -> None:
        """Return once another has taken its place. Where the connection alone was lost, it is taken anew."""
        while True:
            while await asyncio.to_thread(self.sole.held):
                await asyncio.sleep(LOOK_SECONDS)
            await asyncio.to_thread(self.sole.release)
            sole = await _taken(self.kind)
            if sole is None:
                log.warning("The pool's lock was lost with the connection to the store, and another server took it.")
                return
            self.sole = sole


async def alone(kind: str, standing_by: str) -> Alone:
    """Return once this process is the only one of its kind at the store; `standing_by` is told, once, if one is."""
    waited = False
    while (sole := await _taken(kind)) is None:
        if not waited:
            log.warning(standing_by)
        waited = True
        await asyncio.sleep(LOOK_SECONDS)
    return Alone(kind, sole, waited)


async def _taken(kind: str) -> Sole | None:
    """The only place of a kind; None while another has it. It is asked for until the store answers."""
    while True:
        try:
            return await in_thread(READERS, lambda: store().sole(kind))
        except (DatabaseError, OSError) as error:
            log.warning("The pool's lock could not be taken (%s); it is tried again.", error)
        await asyncio.sleep(LOOK_SECONDS)
