"""Waiting for events: a parked wait holds no thread, no database connection and no lock.

While a wait is parked, and for a moment after that, one task per process watches the event log: it reads the new events
once and wakes the waits that they concern. The store's watch notices a commit of another process. An event of this
process is passed here directly, and wakes waits without a read of the log as long as none before it is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import takewhile
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.core.exceptions import SynchronousOnlyOperation
from django.db import DatabaseError

from nexus.core import fairness
from nexus.core.cancellation import for_client
from nexus.core.database.base import CommitWatch
from nexus.core.database.store import store
from nexus.core.domain import domain
from nexus.core.fairness import AgentThreads
from nexus.core.operations.errors import NexusError

T = TypeVar("T")

LOOK_SECONDS = 0.015  # between two looks for a commit of another process
PAUSE_SECONDS = 0.2  # before the log is read again that could not be read
LINGER_SECONDS = 1.0  # the log is still watched when nobody waits any more: an agent that was woken soon waits again
READ_AT_ONCE = 500  # events a look takes into memory
KEPT = 100  # the newest events that are kept, for a call that is about to park

EVERY: frozenset[Hashable] = frozenset(["every event"])  # the key of waits that are asked about each

# What this process writes of its own accord, one after the other.
WRITERS = ThreadPoolExecutor(1, thread_name_prefix="nexus-write")
READERS = ThreadPoolExecutor(4, thread_name_prefix="nexus-read")
# Who somebody is takes one look at an index, and never queues behind what others read.
AUTHENTICATION = ThreadPoolExecutor(2, thread_name_prefix="nexus-who")
# What takes longer than a write may wait comes here, and takes the writers' lock in short steps.
SLOW = ThreadPoolExecutor(3, thread_name_prefix="nexus-slow")
# What may take minutes, such as git or the removal of old rows: beside those who only take long.
MINUTES = ThreadPoolExecutor(4, thread_name_prefix="nexus-minutes")
# What may never answer, such as a mount whose server is gone, is touched here first.
OUTSIDE = ThreadPoolExecutor(32, thread_name_prefix="nexus-outside")
AGENTS = {  # calls of agents take these threads instead
    SLOW: AgentThreads(2, 1, "nexus-slow-agents"),
    MINUTES: AgentThreads(3, 1, "nexus-minutes-agents"),
    OUTSIDE: AgentThreads(32, 4, "nexus-outside-agents"),
}


@cache
def writing_calls() -> ThreadPoolExecutor:
    """Return the threads of calls that write. SQLite has one writer, and a queue in here is fairer and cheaper than its
    busy loop."""
    return WRITERS if store().WRITERS == 1 else ThreadPoolExecutor(store().WRITERS, thread_name_prefix="nexus-call")


async def in_thread(pool: ThreadPoolExecutor, function: Callable[[], T], share: str | None = None) -> T:
    """Run `function` (which uses the ORM) on a thread of `pool`, in a share where that has shares."""
    return await asyncio.wrap_future(submit(pool, partial(with_store, function), share))


def submit(pool: ThreadPoolExecutor, work: Callable[[], T], share: str | None) -> Future[T]:
    """Start `work` on a thread of `pool`, in a share where that has shares."""
    return pool.submit(work) if share is None or pool not in AGENTS else AGENTS[pool].submit(share, work)


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Await work to its end, although this is cancelled meanwhile, even repeatedly; then be cancelled."""
    ending = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait((ending,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return ending.result()


async def on_loop_or_thread(pool: ThreadPoolExecutor, function: Callable[[], T]) -> T:
    """Run `function`, a quick read of the store, on the event loop; on a thread of `pool` if it cannot run there."""
    try:
        return function()
    except SynchronousOnlyOperation:
        return await in_thread(pool, function)


async def unless_left(pool: ThreadPoolExecutor, function: Callable[[], T], share: str | None = None) -> T:
    """Do what `in_thread` does; if this is cancelled, roll back what the thread has not committed."""
    left = threading.Event()

    def work() -> T:
        with for_client(left):
            return function()

    try:
        return await in_thread(pool, work, share)
    except asyncio.CancelledError:
        left.set()
        raise


def with_store(function: Callable[[], T]) -> T:
    """Run `function` and release its thread's connection to the store."""
    try:
        return function()
    finally:
        store().release()


class Interest:
    """The events that a wait is interested in: those that have one of its keys and pass `admits`.

    Waits are found by the keys that the domain finds in an event, so the cost does not grow with the number of
    waits for something else. A wait that gives a plain function instead is asked about every event.
    """

    def __init__(self, keys: Iterable[Hashable], admits: Callable[[Any], bool]) -> None:
        self.keys, self.admits = frozenset(keys), admits

    def __call__(self, event: Any) -> bool:
        return not self.keys.isdisjoint(domain().keys_of(event)) and self.admits(event)


class Parked:
    """One wait: the events that it is interested in, and whether one has come.

    Within the block, each of them wakes it. It holds only a future and a timer, because there may be thousands.
    """

    __slots__ = ("_over", "_waiter", "_woken", "_woken_at", "admits", "keys", "past", "watch")

    def __init__(self, waiter: Waiter, interested: Callable[[Any], bool]) -> None:
        keyed = interested if isinstance(interested, Interest) else Interest(EVERY, interested)
        self.keys, self.admits = keyed.keys, keyed.admits
        self._waiter = waiter
        self.past = 0  # no event up to this one concerned the wait, since it was parked or last woken
        self.watch: asyncio.Task[None] | None = None  # that ran when it was parked, and passes every event to it
        self._woken = False
        self._woken_at = 0  # the first event that woke it; 0 where something else did
        self._over: asyncio.Future[None] | None = None  # while it waits

    async def __aenter__(self) -> Parked:
        try:
            await self._waiter.enter(self)
        except BaseException:
            self._waiter.leave(self)
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        self._waiter.leave(self)

    def wake(self, event_id: int = 0) -> None:
        """Let `wait` return, or the next call of it at once; for an event, or for another reason."""
        if not self._woken:
            self._woken_at = event_id
        self._woken = True
        if self._over is not None:
            _end(self._over)

    async def wait(self, seconds: float) -> bool:
        """Wait until woken or until the time is over; return whether it was woken.

        A call gives its slot to others meanwhile, and returns when it has one again.
        """
        async with fairness.away():
            if not self._woken:
                loop = asyncio.get_running_loop()
                self._over = loop.create_future()
                timer = None if seconds == math.inf else loop.call_later(seconds, _end, self._over)
                try:
                    await self._over
                finally:
                    self._over = None
                    if timer is not None:
                        timer.cancel()
        woken, self._woken = self._woken, False
        self.past = max(self._woken_at - 1, 0) if woken else 0
        return woken


def _end(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


class Waiter:
    """The waits of one event loop and the task that watches the log for them."""

    def __init__(self) -> None:
        self.parked: set[Parked] = set()
        self._by_key: defaultdict[Hashable, set[Parked]] = defaultdict(set)
        self.closing = False  # the server goes down: a wait answers with what it has
        self._news: deque[Any] = deque()  # what this process committed, from whichever thread
        self._called = False
        self._seen: int | None = None  # the last event that was passed to parked waits; None while nobody watches
        self._kept: deque[tuple[Any, frozenset[Hashable]]] = deque(maxlen=KEPT)  # events with their keys
        self._kept_from = 0  # all events after this one are kept
        self._unread = False  # the log has events that were not passed on
        self._stirred = asyncio.Event()  # set to let the watch look now, or end
        self._left = -math.inf  # when the last of those who waited left, by the monotonic clock
        self._watching: asyncio.Task[None] | None = None
        self._primed: asyncio.Future[None] | None = None

    def park(self, interested: Callable[[Any], bool]) -> Parked:
        """Return a wait that every later event wakes which `interested` admits; read the store after entering it."""
        return Parked(self, interested)

    async def enter(self, wait: Parked) -> None:
        """Wait until the log is watched for a wait; `Parked` calls this."""
        self.parked.add(wait)
        for key in wait.keys:
            self._by_key[key].add(wait)
        if self._watching is None or self._watching.done():
            self._primed = asyncio.get_running_loop().create_future()
            self._watching = asyncio.create_task(self._watch(self._primed))
        assert self._primed is not None
        await asyncio.shield(self._primed)
        wait.watch = self._watching

    def leave(self, wait: Parked) -> None:
        """Remove a wait; `Parked` calls this."""
        self.parked.discard(wait)
        for key in wait.keys:
            self._by_key[key].discard(wait)
            if not self._by_key[key]:
                del self._by_key[key]
        if not self.parked:
            self._left = time.monotonic()

    @property
    def is_watching(self) -> bool:
        """Whether an event that is committed now will be passed to the waits."""
        return bool(self.parked) or self._seen is not None

    @property
    def position(self) -> int | None:
        """The id of the last event that was passed to the waits, for `passed_since`; None while nothing is watched."""
        return self._seen

    def passed_since(self, position: int | None, wait: Parked) -> bool:
        """Return whether an event after `position` that concerns `wait` was passed to the waits; True if that is not
        known.

        A caller that read the store after `position`, and is parked, has missed nothing if this is False.
        """
        if position is None or position < self._kept_from:
            return True
        later = takewhile(lambda kept: kept[0].event_id > position, reversed(self._kept))
        return any(not keys.isdisjoint(wait.keys) and wait.admits(event) for event, keys in later)

    def committed(self, event: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Record an event that this process committed; called from any thread. The events of a transaction call the
        waits' loop once."""
        self._news.append(event)
        if not self._called:
            self._called = True
            loop.call_soon_threadsafe(self._receive)

    def _receive(self) -> None:
        self._called = False  # first: what comes from here on calls again
        while self._news:
            event = self._news.popleft()
            if self._seen is None or event.event_id > self._seen + 1:
                self._unread = True  # others are before it
                self._stirred.set()
            elif event.event_id == self._seen + 1:
                self._wake(event)

    def close(self) -> None:
        """Wake every wait, so that each answers now, because the server is ending."""
        self.closing = True
        self._wake_all()
        self._stirred.set()

    async def _watch(self, primed: asyncio.Future[None]) -> None:
        try:
            with _watched() as commits:
                self._seen = self._kept_from = await in_thread(READERS, domain().newest_event_id)
                self._kept.clear()
                primed.set_result(None)
                while self._is_wanted():
                    time_to_look = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._stirred.set)
                    await self._stirred.wait()
                    time_to_look.cancel()
                    self._stirred.clear()
                    if self._unread or commits.has_news(self._seen):
                        self._unread = False
                        try:
                            await self._read()
                        except (DatabaseError, NexusError):  # busy, failing, or moved away
                            self._unread = True
                            await asyncio.sleep(PAUSE_SECONDS)
        except Exception as error:
            if primed.done():
                raise
            primed.set_exception(error)
        finally:
            self._seen = None
            primed.cancel()  # without effect once it has a result
            self._wake_all()  # they look for themselves, and the next to park starts a new watch

    def _is_wanted(self) -> bool:
        """Return whether to go on watching the log."""
        return bool(self.parked) or (not self.closing and time.monotonic() < self._left + LINGER_SECONDS)

    async def _read(self) -> None:
        """Pass on every event of the log after the last one that was passed on."""
        assert self._seen is not None
        while events := await on_loop_or_thread(READERS, partial(domain().events_after, self._seen, READ_AT_ONCE)):
            for event in events:
                if event.event_id > self._seen:  # else it came from this process meanwhile
                    self._wake(event)
            if len(events) < READ_AT_ONCE:
                break

    def _wake(self, event: Any) -> None:
        """Wake the waits that an event concerns."""
        if len(self._kept) == KEPT:
            self._kept_from = self._kept[0][0].event_id
        keys = EVERY.union(domain().keys_of(event))
        self._kept.append((event, keys))
        self._seen = event.event_id
        for key in keys:
            for wait in self._by_key.get(key, ()):
                if wait.admits(event):
                    # Between an earlier watch and this one, events may have come that nobody passed on.
                    wait.wake(event.event_id if wait.watch is self._watching else 0)

    def _wake_all(self) -> None:
        for wait in self.parked:
            wait.wake()


@contextlib.contextmanager
def _watched() -> Iterator[CommitWatch]:
    """Yield a watch for commits, and close it on a thread: the last connection to a file writes its log back."""
    commits = store().watch(domain().log)
    try:
        yield commits
    finally:
        READERS.submit(commits.close)


_waiters: WeakKeyDictionary[asyncio.AbstractEventLoop, Waiter] = WeakKeyDictionary()
_adding = threading.Lock()  # an event loop may begin in one thread while another goes through all of them


def waiter() -> Waiter:
    """Return the waiter of the running event loop."""
    loop = asyncio.get_running_loop()
    if (known := _waiters.get(loop)) is not None:
        return known
    with _adding:
        return _waiters.setdefault(loop, Waiter())


def announce_commit(event: Any) -> None:
    """Pass a committed event to every waiter of this process; called from any thread."""
    with _adding:
        waiters = list(_waiters.items())
    for loop, waiting in waiters:
        if waiting.is_watching and not loop.is_closed():
            waiting.committed(event, loop)
