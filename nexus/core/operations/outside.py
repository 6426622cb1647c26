"""Access to paths that a call names: they are touched before the call, on threads that block no other call."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

from nexus.core import waiting
from nexus.core.files import Reached
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import Outside, Params

P = TypeVar("P", bound=Params)

TIME_LIMIT_SECONDS = 5.0
RECENT_SECONDS = 1.0  # a directory that answered is not touched again for so long to find its path
MOST_RECENT = 1000

_silent: dict[str, Future[object]] = {}  # what did not answer in time, and still has not
_recent: dict[tuple[Outside, Any], tuple[Future[object], float]] = {}  # the last touch of a path, and when it began


async def reach(params: P, share: str | None, *, recent: bool = False) -> P:
    """Return the parameters of a call once every path in them has answered, in a share of threads, with or without an
    error.

    Those that are resolved become `Reached`. With `recent`, an answer of the last second is enough: for a call that
    uses nothing else outside. Raises the error that a parameter declares if it does not answer, and at once if it
    did not answer the last time either.
    """
    reached: dict[str, Reached] = {}
    for touch in _touches(params, share, recent):
        if touch.is_new and not touch.touched.done():
            await asyncio.wait([asyncio.wrap_future(touch.touched)], timeout=TIME_LIMIT_SECONDS)
        reached |= touch.answer()
    return params.model_copy(update=reached) if reached else params


def reach_from_thread(params: P, share: str | None) -> P:
    """Do what `reach` does, from a thread that may wait."""
    reached: dict[str, Reached] = {}
    for touch in _touches(params, share):
        if touch.is_new:
            futures.wait([touch.touched], timeout=TIME_LIMIT_SECONDS)
        reached |= touch.answer()
    return params.model_copy(update=reached) if reached else params


@dataclass(frozen=True)
class _Touch:
    """The touch of a parameter that leads outside the store."""

    name: str
    mark: Outside
    value: Any
    touched: Future[object]
    is_new: bool  # else it did not answer before

    def answer(self) -> dict[str, Reached]:
        """Return the parameter by its name, with what it led to if it is resolved. Raises its declared error if it has
        not answered."""
        path = str(self.value)
        if not self.touched.done() and not self.touched.cancel():
            _silent[path] = self.touched
            self.touched.add_done_callback(lambda _: _silent.pop(path, None))
        if not self.touched.done() or self.touched.cancelled():
            raise NexusError(
                self.mark.silent,
                f"What {self.name} leads to does not answer; is it on a mount whose server is gone?",
                {"field": self.name},
            )
        return {self.name: Reached(self.value, self.touched.result())} if self.mark.resolves else {}


def with_absolute_paths(params: Params, directory: str) -> Params:
    """Return the parameters with relative paths made absolute below `directory`."""
    relative = {
        name: os.path.join(directory, value)
        for name, _ in _marks(type(params))
        if isinstance(value := getattr(params, name), str) and value and not os.path.isabs(value)  # noqa: PTH117
    }
    return params.model_copy(update=relative) if relative else params


def _touches(params: Params, share: str | None, recent: bool = False) -> Iterator[_Touch]:
    for name, mark in _marks(type(params)):
        if (value := getattr(params, name)) is not None:
            silent = _silent.get(str(value))
            yield _Touch(name, mark, value, silent or _touched(mark, value, share, recent), silent is None)


def _touched(mark: Outside, value: Any, share: str | None, recent: bool) -> Future[object]:
    """Return the touch of a path: one that is under way, a recent one if that is enough, otherwise a new one in a
    share."""
    moment, path = time.monotonic(), (mark, str(value))
    touched, begun = _recent.get(path, (None, -math.inf))
    if touched is not None and moment - begun < RECENT_SECONDS and _serves(touched, recent):
        return touched
    if len(_recent) >= MOST_RECENT:
        _recent.clear()
    touched = waiting.submit(waiting.OUTSIDE, partial(_touch, mark, value), share)
    _recent[path] = touched, moment
    return touched


def _serves(touched: Future[object], recent: bool) -> bool:
    return touched.running() or (recent and touched.done() and not touched.cancelled() and touched.result() is not None)


def _touch(mark: Outside, value: Any) -> object:
    try:
        return mark.touch(value)
    except (NexusError, OSError):
        return None


@cache
def _marks(params: type[Params]) -> list[tuple[str, Outside]]:
    return [
        (name, mark)
        for name, info in params.model_fields.items()
        for mark in info.metadata
        if isinstance(mark, Outside)
    ]
