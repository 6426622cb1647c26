"""Fair order of calls: which call is served next while more arrive than can be served at once
(docs/explanation/fairness.md).

Each caller's calls wait in a line of their own, and the lines are served in rotation. However many calls one caller
sends, another caller's call waits for one call of each line, not for all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

AT_ONCE = 16  # calls that are served at once; each has its share of the event loop
SHARE = 4  # of these, how many may be one caller's
LAPSE_SECONDS = 1.0  # a call that takes longer waits for a program or the like: its slot is given to others
RETRY_SECONDS = 1  # when a caller whose call was refused may try again
MOST_LAPSED = 28  # of one caller's calls that go on without a slot
when_refused: list[Callable[[], None]] = []  # called where a call is refused because too many of its caller's wait
SLOT = "nexus.slot"  # where the scope of a request has its slot


class CallSlot:
    """The slot of one call: one of the calls that are served at once. It ends with the call, or after a
    while."""

    def __init__(self, slots: CallSlots, caller: str) -> None:
        self.caller = caller
        self.held = False  # acquired, and not released
        self.lapsed = False  # held, and another call was served instead
        self.kept = False  # whether the call goes on although its response has begun
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self._lapse: asyncio.TimerHandle | None = None

    async def acquire(self) -> None:
        """Wait for a free slot, in fair order."""
        if not self.held:
            await self._slots.enter(self)

    def release(self) -> None:
        """Let the next call be served; without effect if the slot is not held."""
        if self.held:
            self.held = False
            if self._lapse is not None:
                self._lapse.cancel()
                self._lapse = None  # it has the context of the call, which has this: a ring
            self._slots.leave(self)

    def begin(self) -> None:
        """Begin the slot's time; `CallSlots` calls this."""
        self.held, self.lapsed = True, False
        self._lapse = self._loop.call_later(LAPSE_SECONDS, self._slots.lapse, self)

    @property
    def is_here(self) -> bool:
        """Whether the slot belongs to the running event loop: a page that waits has a loop of its own on its thread."""
        return self._loop is asyncio.get_running_loop()


class CallSlots:
    """The slots of one event loop."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, OrderedDict[asyncio.Future[None], CallSlot]] = OrderedDict()  # the next one first
        self._serving: Counter[str] = Counter()  # by caller, calls that are being served
        self._lapsed: Counter[str] = Counter()  # and calls that go on without one
        self._free = AT_ONCE

    def waiting(self, caller: str) -> int:
        """Return how many calls of a caller wait for a slot."""
        return len(self._lines.get(caller, ()))

    @property
    def all_waiting(self) -> int:
        """The number of calls that wait for a slot."""
        return sum(map(len, self._lines.values()))

    async def enter(self, slot: CallSlot) -> None:
        """Wait until `slot` begins. If this is cancelled, it does not begin."""
        if slot.caller not in self._lines and self._is_free(slot.caller):
            self._give(slot)
            return
        given = asyncio.get_running_loop().create_future()
        self._lines.setdefault(slot.caller, OrderedDict())[given] = slot
        try:
            await given
        except asyncio.CancelledError:
            if slot.held:
                slot.release()
            else:
                self._forget(slot.caller, given)
            raise

    def leave(self, slot: CallSlot) -> None:
        """Record that a call released its slot."""
        if slot.lapsed:
            _count_down(self._lapsed, slot.caller)
        else:
            self._free_place(slot.caller)

    def lapse(self, slot: CallSlot) -> None:
        """Let a call go on without its slot, unless too many of its caller's calls do already."""
        if self._lapsed[slot.caller] < MOST_LAPSED:
            slot.lapsed = True
            self._lapsed[slot.caller] += 1
            self._free_place(slot.caller)

    def _free_place(self, caller: str) -> None:
        _count_down(self._serving, caller)
        self._free += 1
        self._give_next()

    def _is_free(self, caller: str) -> bool:
        return self._free > 0 and self._serving[caller] < SHARE

    def _give(self, slot: CallSlot) -> None:
        self._free -= 1
        self._serving[slot.caller] += 1
        slot.begin()

    def _give_next(self) -> None:
        while caller := next(filter(self._is_free, self._lines), None):
            given, slot = next(iter(self._lines[caller].items()))
            self._lines.move_to_end(caller)
            self._forget(caller, given)
            if not given.cancelled():  # its client left in this moment, and its task has not noticed yet
                self._give(slot)
                given.set_result(None)

    def _forget(self, caller: str, given: asyncio.Future[None]) -> None:
        line = self._lines.get(caller, OrderedDict())
        line.pop(given, None)
        if not line:
            self._lines.pop(caller, None)


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
                _count_down(self._taken, of)
                return
            given, work = self._lines[of].popleft()
        if given.set_running_or_notify_cancel():
            try:
                given.set_result(work())
            except BaseException as error:
                given.set_exception(error)
        self._threads.submit(self._next, of)  # behind the calls of others


def _count_down(counter: Counter[str], caller: str) -> None:
    counter[caller] -= 1
    if not counter[caller]:
        del counter[caller]


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
