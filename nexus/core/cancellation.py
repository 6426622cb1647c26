"""Cancellation of work whose client has disconnected."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_thread = threading.local()


class ClientDisconnected(Exception):
    """The client disconnected before the work was committed; the work is rolled back."""


@contextmanager
def for_client(left: threading.Event) -> Iterator[None]:
    """Once `left` is set, a commit of a transaction that this thread begins in the block raises ClientDisconnected."""
    _thread.left = left
    try:
        yield
    finally:
        _thread.left = None


def check_there() -> None:
    """Raise ClientDisconnected if the client that this thread works for has disconnected."""
    left: threading.Event | None = getattr(_thread, "left", None)
    if left is not None and left.is_set():
        raise ClientDisconnected


async def while_there(receive: Any, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`; cancel it and return None if the client of an ASGI application disconnects first.

    It runs in the current task: thousands of calls may wait, and each further task costs memory.
    """
    task, left = asyncio.current_task(), asyncio.ensure_future(_gone(receive))
    assert task is not None
    working = True

    def end(_: object) -> None:
        if working:  # a server says that the client is gone when the answer is complete, too
            task.cancel()

    left.add_done_callback(end)
    try:
        return await work
    except asyncio.CancelledError:
        if left.done() and not task.uncancel():
            return None
        raise
    finally:
        working = False
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
