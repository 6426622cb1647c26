"""Work beside the requests: an operation stores what is to be done, a worker does it, a wait tells how it went.

What takes longer than other writers may wait, a request to a stranger or a program that runs for minutes, is never done
by the operation that asks for it. The operation stores the intent and its event in one transaction. A worker claims
the intent, acts without holding a transaction, and settles it, with the event of the outcome. Whoever asked waits for
that event like for any other.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

from core.waiting import READERS, WRITERS, in_thread, waiter

log = logging.getLogger(__name__)

PACE_SECONDS = 0.1  # a burst of events makes one round

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Work(ABC, Generic[Item, Outcome]):
    """One kind of work. Its items wait in lanes: one lane is done in order, and none waits for another.

    An item is done at least once. `claim` commits when the same item is due again, so that a process that dies while
    acting, or before it has settled, loses nothing.
    """

    name: str  # in the log and of the threads
    threads = 1  # how many items are acted on at a time
    watches_log = False  # whether a new event may make something due, and not time alone
    tick_seconds = 1.0  # how often it is looked for what time alone makes due
    idle_seconds = 5.0  # and how often for lanes, while there are none

    @abstractmethod
    def lanes(self) -> Sequence[str]:
        """The lanes that there are now; reads only."""

    @abstractmethod
    def claim(self, lane: str) -> Item | None:
        """Take the next item that is due, for one attempt; None when none is. A short transaction."""

    @abstractmethod
    def act(self, item: Item) -> Outcome:
        """Do it, for as long as it takes, holding no transaction meanwhile. How it went is returned, not raised."""

    @abstractmethod
    def settle(self, item: Item, outcome: Outcome) -> bool:
        """Store how it went, in a short transaction; whether this lane goes on at once, or with the next tick."""


def work_once(work: Work[Any, Outcome]) -> list[Outcome]:
    """Do all that is due now, lane by lane, in this thread; what came of each item."""
    outcomes = []
    for lane in work.lanes():
        while (item := work.claim(lane)) is not None:
            outcomes.append(outcome := work.act(item))
            work.settle(item, outcome)
    return outcomes


async def work_forever(work: Work[Any, Any]) -> None:
    """Do what becomes due until cancelled; a failure of the store is logged, and the next round tries again."""
    await _Worker(work).work()


class _Worker(Generic[Item, Outcome]):
    """The rounds of one kind of work, and the lanes it is at."""

    def __init__(self, work: Work[Item, Outcome]) -> None:
        self.kind = work
        self.threads = ThreadPoolExecutor(work.threads, thread_name_prefix=f"nexus-{work.name}")
        self.busy: set[str] = set()

    async def work(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    try:
                        await self._round(tasks)
                    except Exception as error:
                        log.warning("%s could not be looked after (%s); it is tried again.", self.kind.name, error)
                        await asyncio.sleep(self.kind.tick_seconds)
                    await asyncio.sleep(PACE_SECONDS)
        finally:
            self.threads.shutdown(wait=False, cancel_futures=True)

    async def _round(self, tasks: asyncio.TaskGroup) -> None:
        lanes = await in_thread(READERS, self.kind.lanes)
        if not lanes:
            await asyncio.sleep(self.kind.idle_seconds)
        elif self.kind.watches_log:
            async with waiter().park(lambda event: True) as parked:  # first: what comes from here on wakes
                self._begin(lanes, tasks)
                await parked.wait(self.kind.tick_seconds)
        else:
            self._begin(lanes, tasks)
            await asyncio.sleep(self.kind.tick_seconds)

    def _begin(self, lanes: Sequence[str], tasks: asyncio.TaskGroup) -> None:
        for lane in lanes:
            if lane not in self.busy:
                self.busy.add(lane)
                tasks.create_task(self._lane(lane))

    async def _lane(self, lane: str) -> None:
        try:
            going = True
            while going and (item := await in_thread(WRITERS, partial(self.kind.claim, lane))) is not None:
                outcome = await in_thread(self.threads, partial(self.kind.act, item))
                going = await in_thread(WRITERS, partial(self.kind.settle, item, outcome))
        except Exception as error:
            log.warning("%s: %s was not finished (%s); it is tried again.", self.kind.name, lane, error)
        finally:
            self.busy.discard(lane)
