"""Fair order of calls: which call is served next while more arrive than can be served at once
(docs/explanation/architecture.md).

A call waits for a slot of its caller first, and then for one of all. So however many calls one caller sends, another
caller's call waits for a few of them only.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

T = TypeVar("T")

AT_ONCE = 16  # calls that are served at once; each has its share of the event loop
SHARE = 4  # of these, how many may be one caller's
LAPSE_SECONDS = 1.0  # a call that takes longer waits for a program or the like: its slot is given to others
RETRY_SECONDS = 1  # when a caller whose call was refused may try again
when_refused: list[Callable[[], None]] = []  # called where a call is refused because too many of its caller's wait
SLOT = "nexus.slot"  # where the scope of a request has its slot


class Line(asyncio.Semaphore):
    """The slots of one caller, and how many of its calls wait for one."""

    waiting = 0


class CallSlots:
    """The slots of one event loop."""

    def __init__(self) -> None:
        self.of_all = asyncio.Semaphore(AT_ONCE)
        self._lines: WeakValueDictionary[str, Line] = WeakValueDictionary()  # each for as long as it has a call

    def line(self, caller: str) -> Line:
        """Return a caller's own slots."""
        line = self._lines.get(caller)
        if line is None:
            line = self._lines[caller] = Line(SHARE)
        return line

    @property
    def all_waiting(self) -> int:
        """The number of calls that wait for a slot."""
        return sum(line.waiting for line in self._lines.values())


class CallSlot:
    """The slot of one call: one of the calls that are served at once. It ends with the call, or after a
    while."""

    def __init__(self, slots: CallSlots, caller: str) -> None:
        self.held = False  # acquired, and not released
        self.kept = False  # whether the call goes on although its response has begun
        self.line = slots.line(caller)
        self._of_all = slots.of_all
        self._loop = asyncio.get_running_loop()
        self._lapse: asyncio.TimerHandle | None = None

    async def acquire(self) -> None:
        """Wait for a free slot, in fair order."""
        if self.held:
            return
        self.line.waiting += 1
        try:
            await self.line.acquire()
            try:
                await self._of_all.acquire()
            except BaseException:
                self.line.release()
                raise
        finally:
            self.line.waiting -= 1
        self.held = True
        self._lapse = self._loop.call_later(LAPSE_SECONDS, self.release)

    def release(self) -> None:
        """Let the next call be served; without effect if the slot is not held."""
        if self.held:
            self.held = False
            assert self._lapse is not None
            self._lapse.cancel()
            self._lapse = None  # it has the context of the call, which has this: a ring
            self._of_all.release()
            self.line.release()

    @property
    def is_here(self) -> bool:
        """Whether the slot belongs to the running event loop: a page that waits has a loop of its own on its thread."""
        return self._loop is asyncio.get_running_loop()


class AgentThreads:
    """Threads for calls of agents: each family of agents has its share, and what it calls beyond that waits in its
    line. So what never returns holds up its own family alone."""

    def __init__(self, threads: int, share: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._share = share
        self._lines: defaultdict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = defaultdict(deque)
        self._taken: Counter[str] = Counter()  # of a share
        self._lock = threading.Lock()

    def submit(self, of: str, work: Callable[[], T]) -> Future[T]:
        """Run `work` in the share `of` a family; while it waits in line, its future can be cancelled."""
        given = Future[T]()
        with self._lock:
            self._lines[of].append((given, work))
            if self._taken[of] < self._share:
                self._taken[of] += 1
                self._threads.submit(self._next, of)
        return given

    def _next(self, of: str) -> None:
        with self._lock:
            if not self._lines[of]:
                del self._lines[of]
                self._taken[of] -= 1
                if not self._taken[of]:
                    del self._taken[of]
                return
            given, work = self._lines[of].popleft()
        if given.set_running_or_notify_cancel():
            try:
                given.set_result(work())
            except BaseException as error:
                given.set_exception(error)
        self._threads.submit(self._next, of)  # behind the calls of others


_call_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, CallSlots] = WeakKeyDictionary()
_current: ContextVar[CallSlot | None] = ContextVar("slot", default=None)


def call_slots() -> CallSlots:
    """Return the slots of the running event loop."""
    return _call_slots.setdefault(asyncio.get_running_loop(), CallSlots())


@asynccontextmanager
async def holding(slot: CallSlot | None) -> AsyncIterator[None]:
    """Hold the call's slot within the block, also after its response has begun; None stands for a call that needs no
    slot."""
    if slot is None:
        yield
        return
    token = _current.set(slot)
    try:
        await slot.acquire()
        slot.kept = True
        yield
    finally:
        slot.kept = False
        slot.release()
        _current.reset(token)


def current() -> CallSlot | None:
    """Return the slot that the running task holds."""
    slot = _current.get()
    return slot if slot is not None and slot.is_here and slot.held else None


def hold(slot: CallSlot) -> None:
    """Make this the slot of the running task."""
    _current.set(slot)


class away:  # reads as the function it is, and holds less than one while it waits
    """Give the running task's slot to others within the block, while it waits for something; take one again at its
    end."""

    __slots__ = ("slot",)

    async def __aenter__(self) -> None:
        self.slot = current()
        if self.slot is not None:
            self.slot.release()

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        if self.slot is not None and kind is None:
            await self.slot.acquire()
