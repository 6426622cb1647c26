"""Storing the outcome of turns although the store may be unavailable for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from django.db import DatabaseError, connection

from nexus.core.operations.errors import Code, NexusError
from nexus.core.waiting import WRITERS, in_thread

T = TypeVar("T")

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two tries


async def stored(write: Callable[[], T], seconds: float, *, twice: bool = False) -> T:
    """Run `write` and return its result; retry for so many seconds while the store is busy, full or away. Raises the
    last error.

    If the connection is lost during a commit, nobody knows whether the commit took effect. It is retried only with
    `twice`: storing it twice does no harm.
    """
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, SHORTEST_PAUSE
    while True:
        try:
            return await in_thread(WRITERS, partial(_on_sound_connection, write))
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
