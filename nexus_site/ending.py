"""The end of a command at the first SIGINT or SIGTERM, at any time; later signals do not disturb it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")
NUMBERS = (signal.SIGINT, signal.SIGTERM)
QUIET_SECONDS, DRAIN_SECONDS = 0.5, 10  # a server's end waits while calls still finish, but not for ever

_end: BaseException | None = None  # the exception that the first signal raised
_task: asyncio.Task[Any] | None = None  # the task that a signal cancels instead


def end_at_signals(interrupted: BaseException, terminated: BaseException) -> None:
    """Raise these exceptions at SIGINT and SIGTERM, until another handler is set.

    Without a handler, the first process of a container would not even get the signals.
    """
    ends = dict(zip(NUMBERS, (interrupted, terminated), strict=True))

    def end(number: int, frame: Any) -> None:
        global _end
        if _end is not None:
            return
        _end = ends[signal.Signals(number)]
        if _task is None:
            raise _end
        # Raised here, it would interrupt whatever the event loop does, also what ends the tasks.
        _task.cancel()
        _task.get_loop().call_soon_threadsafe(lambda: None)  # wakes the event loop

    for number in NUMBERS:
        signal.signal(number, end)


def is_asked() -> bool:
    """Return whether a signal came. Python ignores what a handler raises inside a finalizer."""
    return _end is not None


def check() -> None:
    """Raise the exception of a signal that came."""
    if _end is not None:
        raise _end


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine as `asyncio.run` does. A signal cancels it, and is raised after its clean-up."""
    import asyncio

    async def cancellable() -> Result:
        global _task
        _task = asyncio.current_task()
        try:
            check()
            return await coroutine
        finally:
            _task = None

    try:
        return asyncio.run(cancellable())
    finally:
        coroutine.close()  # it may not have begun
        check()


async def drained(running: Callable[[], Collection[asyncio.Future[Any]]]) -> None:
    """Return when no call of a server is under way, or the remaining ones do not end: streams, or calls that take too
    long."""
    import asyncio

    loop = asyncio.get_running_loop()
    deadline = loop.time() + DRAIN_SECONDS
    while (tasks := running()) and loop.time() < deadline:
        done, _ = await asyncio.wait(tasks, timeout=QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return


def ignore_interrupts() -> None:
    """Ignore Ctrl-C during the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
