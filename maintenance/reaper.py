"""The optional reaper of a server: does at its leisure what otherwise happens in passing, when somebody next looks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from coordination.services import sessions
from coordination.services import settings as stored_settings
from core.waiting import WRITERS, in_thread
from handoffs import services as handoffs
from maintenance import retention

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 5.0


async def reap_forever() -> None:
    """Expire leases, close dead sessions and prune, a little every few seconds, until cancelled."""
    while True:
        await reap()
        await asyncio.sleep(INTERVAL_SECONDS)


async def reap() -> None:
    """One round of short steps, each in the queue of the server's own writes; one that fails waits for the next."""
    steps: list[Callable[[], None]] = [
        stored_settings.refresh,
        handoffs.expire_leases_everywhere,
        sessions.reap_everywhere,
    ]
    steps += [partial(retention.prune_a_batch, name) for name in retention.lanes()]
    for step in steps:
        try:
            await in_thread(WRITERS, step)
        except Exception as error:
            log.warning("The reaper could not finish a step (%s); it tries again.", error)
