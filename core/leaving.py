"""A client that goes away ends what is done for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_thread = threading.local()


class Left(Exception):
    """The client went away before what was done for it was committed: it is undone."""


@contextmanager
def for_client(left: threading.Event) -> Iterator[None]:
    """Inside, this thread commits no transaction that began here once `left` is set; it raises Left instead."""
    _thread.left = left
    try:
        yield
    finally:
        _thread.left = None


def check_there() -> None:
    """Raises Left where the client for whom this thread works went away."""
    left: threading.Event | None = getattr(_thread, "left", None)
    if left is not None and left.is_set():
        raise Left


async def while_there(receive: Any, work: Coroutine[Any, Any, T]) -> T | None:
    """What the work comes to; None where the client of an ASGI application left first, and it was cancelled."""
    working, left = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, left), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, left):
            task.cancel()
        await asyncio.gather(working, left, return_exceptions=True)


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
