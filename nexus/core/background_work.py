"""Background work: an operation stores what is to be done, a task of the hub does it, and callers wait for the event of
its outcome.

An operation never does itself what takes longer than other writers may wait, such as a request to another server or a
program that runs for minutes. It stores the intent and its event in one transaction. A task of the hub claims the
intent, acts without holding a transaction, and settles it, with the event of the outcome. Whoever asked waits for that
event like for any other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, TypeVar

from django.db import Error, InterfaceError, OperationalError

from nexus.core.database.store import store
from nexus.core.database.store_file import is_moved
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import READERS, WRITERS, in_thread, waiter, with_store

log = logging.getLogger(__name__)

PACE_SECONDS = 0.1  # a burst of events makes one round

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class BackgroundWork(ABC, Generic[Item, Outcome]):
    """One kind of background work. Its items wait in queues: each queue is done in order, and no queue waits for
    another.

    An item is done at least once. `claim` commits when the same item is due again, so that a process that dies while
    acting, or before it has settled, loses nothing.
    """

    name: str  # in the log and of the threads
    threads = 1  # how many items are acted on at a time
    watches_log = False  # whether a new event may make something due, and not time alone
    tick_seconds = 1.0  # how often it is looked for what time alone makes due
    idle_seconds = 5.0  # and how often for queues, while there are none

    @abstractmethod
    def queues(self) -> Sequence[str]:
        """Return the queues that have items now; reads only."""

    @abstractmethod
    def claim(self, queue: str) -> Item | None:
        """Take the next due item of a queue for one attempt, in a short transaction; None if none is due."""

    @abstractmethod
    def act(self, item: Item) -> Outcome:
        """Do the work, however long it takes, without holding a transaction. A failure is returned as an outcome, not
        raised."""

    @abstractmethod
    def given_up(self, item: Item, why: str) -> Outcome:
        """Return the outcome of an item that failed twice for a reason that nobody knows; `why` is for people. It must
        not be due again at once."""

    @abstractmethod
    def settle(self, item: Item, outcome: Outcome) -> bool:
        """Store the outcome in a short transaction; return whether this queue goes on at once, or with the next
        tick."""


def work_once(work: BackgroundWork[Any, Outcome]) -> list[Outcome]:
    """Do all that is due now, queue by queue, in this thread; return the outcome of each item. A queue whose item waits
    is left there."""
    outcomes = []
    for queue in work.queues():
        while (item := work.claim(queue)) is not None:
            outcomes.append(outcome := work.act(item))
            if not work.settle(item, outcome):
                break
    return outcomes


@contextlib.contextmanager
def repeated(call: Callable[[], bool], seconds: float, name: str) -> Iterator[None]:
    """Make a call every so many seconds during the block, in a thread of its own, until it returns False.

    It renews a lease while `act` waits for others. One that fails is made again: the lease ends by itself.
    """
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(seconds):
            with contextlib.suppress(Error, NexusError):  # a commit in doubt, too
                if not with_store(call):
                    return

    thread = threading.Thread(target=go_on, name=f"nexus-{name}-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class Failures:
    """A log of repeated failures: once with the traceback, if nobody knows what to do, then with their number."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._seen: dict[Hashable, tuple[Hashable, int]] = {}  # by subject: the failure, and how often it came in a row

    def failed(self, subject: Hashable, message: str, error: Exception) -> None:
        """Log `message` if this failure is new to `subject`, otherwise with the count, at each power of two."""
        step = error.__traceback__
        while step is not None and step.tb_next is not None:
            step = step.tb_next
        failure = (type(error), step and (step.tb_frame.f_code.co_filename, step.tb_lineno))  # texts may differ
        former, count = self._seen.get(subject, (None, 0))
        count = count + 1 if former == failure else 1
        self._seen[subject] = failure, count
        known = error if isinstance(error, NexusError) else store().failure(error)
        said = error if known is None else known.message
        if count == 1:
            self._logger.warning("%s (%s); it is tried again.", message, said, exc_info=None if known else error)
        elif count & (count - 1) == 0:
            self._logger.warning("%s (%s), %d times in a row by now.", message, said, count)

    def succeeded(self, subject: Hashable, message: str) -> None:
        """Log the end of the failures of `subject`, if it had any."""
        if (last := self._seen.pop(subject, None)) is not None:
            self._logger.warning("%s again, after %d failures.", message, last[1])


async def work_forever(work: BackgroundWork[Any, Any]) -> None:
    """Do due work until cancelled; a failure of the store is logged, and the next round tries again."""
    await _Worker(work).work()


class _Worker(Generic[Item, Outcome]):
    """The rounds of one kind of work, and its busy queues."""

    def __init__(self, work: BackgroundWork[Item, Outcome]) -> None:
        self.kind = work
        self.threads = ThreadPoolExecutor(work.threads, thread_name_prefix=f"nexus-{work.name}")
        self.busy: set[str] = set()
        self._failures = Failures(log)
        # Queues whose last item here succeeded. All others share half of the threads, so that what never answers
        # holds up only its like.
        self.proven: set[str] = set()
        self.doubted: set[str] = set()  # queues whose last item failed, nobody knows why
        self.unproven = asyncio.Semaphore(max(1, work.threads // 2))

    async def work(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    try:
                        await self._round(tasks)
                        self._failures.succeeded(None, f"{self.kind.name} is looked after")
                    except Exception as error:
                        if not is_moved(error):  # that is in the log already
                            self._failures.failed(None, f"{self.kind.name} could not be looked after", error)
                        await asyncio.sleep(self.kind.tick_seconds)
                    await asyncio.sleep(PACE_SECONDS)
        finally:
            self.threads.shutdown(wait=False, cancel_futures=True)

    async def _round(self, tasks: asyncio.TaskGroup) -> None:
        queues = await in_thread(READERS, self.kind.queues)
        if not queues:
            await asyncio.sleep(self.kind.idle_seconds)
        elif self.kind.watches_log:
            async with waiter().park(lambda event: True) as parked:  # first: what comes from here on wakes
                self._begin(queues, tasks)
                await parked.wait(self.kind.tick_seconds)
        else:
            self._begin(queues, tasks)
            await asyncio.sleep(self.kind.tick_seconds)

    def _begin(self, queues: Sequence[str], tasks: asyncio.TaskGroup) -> None:
        for queue in queues:
            if queue not in self.busy:
                self.busy.add(queue)
                tasks.create_task(self._queue(queue))

    async def _queue(self, queue: str) -> None:
        try:
            while await self._item(queue):
                pass
            self._failures.succeeded(queue, f"{self.kind.name}: {queue} goes on")
        except Exception as error:
            self.proven.discard(queue)
            self._failures.failed(queue, f"{self.kind.name}: {queue} was not finished", error)
        finally:
            self.busy.discard(queue)

    async def _item(self, queue: str) -> bool:
        """Do a queue's next item; return whether the queue goes on at once."""
        # Before the claim: an item that is claimed must not wait for a thread until it is due again.
        async with contextlib.nullcontext() if queue in self.proven else self.unproven:
            item = await in_thread(WRITERS, partial(self.kind.claim, queue))
            if item is None:
                return False
            try:
                outcome = await in_thread(self.threads, partial(self.kind.act, item))
                going = await in_thread(WRITERS, partial(self.kind.settle, item, outcome))
            except Exception as error:
                if isinstance(error, (OperationalError, InterfaceError)) or store().failure(error) or is_moved(error):
                    raise
                if queue not in self.doubted:
                    self.doubted.add(queue)
                    raise
                log.exception("%s: %s was given up, since it failed twice.", self.kind.name, queue)
                reason = error.message if isinstance(error, NexusError) else type(error).__name__
                why = f"it failed twice for a reason that Nexus does not know ({reason}); the hub's log has more"
                outcome = self.kind.given_up(item, why)
                going = await in_thread(WRITERS, partial(self.kind.settle, item, outcome))
        self.doubted.discard(queue)
        (self.proven.add if going else self.proven.discard)(queue)
        return going
