"""The queue of a store's writers: who looks for the database's lock next, among processes and their threads."""

from __future__ import annotations

import math
import os
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

BURST_SECONDS = 0.006  # a busy writer goes on for so long: its cache is warm, and passing the turn on costs time
GAP_SECONDS = 0.002  # a writer that comes again within this is busy; nobody waits for another
STEP_SECONDS = 0.0005  # how often the first of the queue looks whether the store is free
CLOCK = struct.Struct("d")  # how the queue's file holds a moment


class WriterQueue:
    """The writers of one store: the kernel's queue for a lock on a file, and before it one for the process's threads.

    The file says until when the burst lasts of the process that had the last turn. A process that is killed leaves the
    queue at once. Where there are no such locks, everybody is first.
    """

    def __init__(self, path: Path) -> None:
        self._threads = threading.Lock()
        self._hung: Future[None] | None = None  # a wait for the lock that outlasted its caller's patience
        self._burst_ends = self._left = -math.inf  # on the clock that all processes share, in seconds
        self._descriptor: int | None = None
        if fcntl is not None:
            with suppress(OSError):
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def in_burst(self) -> bool:
        """Whether this process had its turn so lately that it may look for the store past the queue."""
        return time.monotonic() < self._burst_ends

    def left(self) -> None:
        """A transaction of this process has ended."""
        self._left = time.monotonic()

    @contextmanager
    def first(self, deadline: float) -> Iterator[None]:
        """Inside, this thread is the first of the queue; or time has run out, and it may look once."""
        busy = time.monotonic() - self._left < GAP_SECONDS
        known = self._threads.acquire(timeout=_until(deadline))
        locked = known and self._lock(deadline)
        try:
            if locked and (pause := min(self._burst_left(), _until(deadline))):
                time.sleep(pause)
            yield
            if locked and busy:
                self._burst_ends = time.monotonic() + BURST_SECONDS
                self._announce()
        finally:
            if locked:
                self._unlock()
            if known:
                self._threads.release()

    def _burst_left(self) -> float:
        """For how many seconds the last turn still goes on; 0 for what no writer of this time can have announced."""
        assert self._descriptor is not None
        said = os.pread(self._descriptor, CLOCK.size, 0)
        left = CLOCK.unpack(said)[0] - time.monotonic() if len(said) == CLOCK.size else 0
        return left if 0 < left <= BURST_SECONDS else 0

    def _announce(self) -> None:
        assert self._descriptor is not None
        with suppress(OSError):  # a full disk; the transaction will tell
            os.pwrite(self._descriptor, CLOCK.pack(self._burst_ends), 0)

    def _lock(self, deadline: float) -> bool:
        if self._descriptor is None:
            return False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        except OSError:  # a file system without such locks
            return False
        if self._hung is not None and not self._hung.done():
            return False  # whoever is first is stopped, or hangs: no second write waits for it
        waiting: Future[None] = Future()
        # A lock's queue knows no time limit; and a process does not end before a thread that is no daemon.
        threading.Thread(target=self._wait_for_lock, args=(waiting,), name="nexus-queue", daemon=True).start()
        try:
            waiting.result(_until(deadline))
            return True
        except TimeoutError:
            self._hung = waiting
            waiting.add_done_callback(lambda done: self._unlock())  # it goes on, and then passes the turn on
        except OSError:
            pass
        return False

    def _wait_for_lock(self, waiting: Future[None]) -> None:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        except OSError as error:
            waiting.set_exception(error)
        else:
            waiting.set_result(None)

    def _unlock(self) -> None:
        assert self._descriptor is not None
        with suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)


def _until(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0)


@cache
def queue_of(path: Path) -> WriterQueue:
    """This process's place in the queue whose lock is the file at `path`."""
    return WriterQueue(path)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=queue_of.cache_clear)  # a child that shared the lock would not queue
