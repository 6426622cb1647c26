"""The first SIGINT or SIGTERM ends a command, from its first moment on; later ones do not disturb its end."""

from __future__ import annotations

import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

Result = TypeVar("Result")
NUMBERS = (signal.SIGINT, signal.SIGTERM)

_end: BaseException | None = None  # what the first signal raised
_task: asyncio.Task[Any] | None = None  # what a signal cancels instead


def end_at_signals(interrupted: BaseException, terminated: BaseException) -> None:
    """Raise these at SIGINT and SIGTERM, until somebody else handles them.

    Without a handler of ours, the first process of a container would not even get them.
    """
    ends = dict(zip(NUMBERS, (interrupted, terminated), strict=True))

    def end(number: int, frame: Any) -> None:
        global _end
        if _end is not None:
            return
        _end = ends[signal.Signals(number)]
        if _task is None:
            raise _end
        # Raised here, it would break off whatever the event loop does, and with it what ends the others.
        _task.cancel()
        _task.get_loop().call_soon_threadsafe(lambda: None)  # wakes the loop

    for number in NUMBERS:
        signal.signal(number, end)


def is_asked() -> bool:
    """Whether a signal came. Where it came inside of a finalizer, Python ignored what it raised."""
    return _end is not None


def check() -> None:
    """Raise what a signal that came raised."""
    if _end is not None:
        raise _end


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine as `asyncio.run` does. A signal cancels it, and is raised once it has tidied up."""
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


def ignore_interrupts() -> None:
    """Let nothing that is typed disturb the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
