"""The wait of a call that found nothing yet: it looks repeatedly until there is a result or the time is over.

A wait is parked without a thread, a connection to the store or a lock (`nexus.core.waiting`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from nexus.core import waiting
from nexus.core.config import CoreSettings
from nexus.core.operations.parameters import Params
from nexus.core.operations.registry import Wait
from nexus.core.operations.replies import Data, Outcome

Interested = Callable[[Any], bool]


class Looking(NamedTuple):
    """How the dispatch looks for a wait, and finishes its call."""

    # Returns what there is from a position on, and when time alone may change that; what is known while the store is
    # busy. Runs where a quick call runs, or on a thread.
    look: Callable[[Params, Data], Coroutine[Any, Any, tuple[Data, datetime | None]]]
    finish: Callable[[Data], Coroutine[Any, Any, Data]]  # returns the answer after something was found


async def wait_for(
    wait: Wait[Any],
    params: Params,
    data: Data,
    looking: Looking,
    seen: int | None = None,
    interested: Interested | None = None,
) -> Data:
    """Look repeatedly, starting from the answer of the performed call, until there is a result or the time is over.

    The first look comes at once, unless the waiter's position `seen` before the call shows that it would find nothing.
    """
    seconds = wait.timeout(params)
    if wait.capped:
        seconds = min(seconds, CoreSettings.current().max_wait_timeout_seconds)
    deadline = time.monotonic() + seconds

    if interested is None:  # it may look at a path
        interested = await waiting.in_thread(waiting.READERS, partial(wait.interested, wait.resume(params, data)))
    async with waiting.waiter().park(interested) as parked:
        stays, past = wait.next_change is None and not wait.unfinished(data), 0
        if stays and not waiting.waiter().closing and not waiting.waiter().passed_since(seen, parked):
            woken = await parked.wait(deadline - time.monotonic())
            if not woken and wait.finish is None:
                return wait.expired(params, data)  # nothing came: thousands may end together, and none need look
            past = parked.past
        position = wait.past(wait.resume(params, data), past)
        while True:
            found, change = await looking.look(position, data)
            left = deadline - time.monotonic()
            if wait.done(found):
                if wait.finish is None or wait.look is None:
                    return found
                answer = await looking.finish(data)
                if wait.done(answer):
                    return answer
                change = datetime.now(UTC)  # another was quicker, or holds the store
            data = found if wait.finish is None else data
            if left <= 0 or waiting.waiter().closing:
                return wait.expired(params, data)
            position = wait.resume(params, data)
            if not wait.unfinished(data):
                await parked.wait(min(left, _seconds_until(change)))
                position = wait.past(position, parked.past)


def _seconds_until(moment: datetime | None) -> float:
    if moment is None:
        return math.inf
    return max((moment - datetime.now(UTC)).total_seconds(), CoreSettings.current().poll_interval_ms / 1000)


async def unless_abandoned(
    calling: Coroutine[Any, Any, Outcome],
    waited: Callable[[Outcome], Coroutine[Any, Any, Outcome]],
    abandoned: Callable[[Data], object],
) -> Outcome:
    """Return the outcome of a call, and of the wait after it; where the caller disconnects, even in the middle of the
    call, pass what the call answered to `abandoned`, on the writers' thread."""

    def notify(called: asyncio.Task[Outcome]) -> None:
        if not called.cancelled() and (data := called.result().data) is not None:
            waiting.WRITERS.submit(waiting.with_store, partial(abandoned, data))

    call = asyncio.ensure_future(calling)
    try:
        return await waited(await asyncio.shield(call))
    except asyncio.CancelledError:
        call.add_done_callback(notify)
        raise
