"""What a call names outside the store is touched first, where nobody waits for it but that call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any

from nexus.core import waiting
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import Outside, Params

TIME_LIMIT_SECONDS = 5.0

_silent: dict[str, Future[object]] = {}  # what did not answer in time, and still has not


async def reach(params: Params) -> None:
    """Return once everything outside the store that a call names has answered, with an error or without.

    Raises the error that a parameter declares when it does not, at once where it did not the last time either.
    """
    for touch in _touches(params):
        if touch.is_new:
            await asyncio.wait([asyncio.wrap_future(touch.touched)], timeout=TIME_LIMIT_SECONDS)
        touch.check()


def reach_from_thread(params: Params) -> None:
    """`reach`, from a thread that may wait so long."""
    for touch in _touches(params):
        if touch.is_new:
            futures.wait([touch.touched], timeout=TIME_LIMIT_SECONDS)
        touch.check()


@dataclass(frozen=True)
class _Touch:
    """A parameter that leads outside the store, as it is touched."""

    name: str
    mark: Outside
    value: str
    touched: Future[object]
    is_new: bool  # else it did not answer before

    def check(self) -> None:
        """Raises the error that the parameter declares where it has not answered."""
        if not self.touched.done() and not self.touched.cancel():
            _silent[self.value] = self.touched
            self.touched.add_done_callback(lambda _: _silent.pop(self.value, None))
        if not self.touched.done() or self.touched.cancelled():
            raise NexusError(
                self.mark.silent,
                f"What {self.name} leads to does not answer; is it on a mount whose server is gone?",
                {"field": self.name},
            )


def placed(params: Params, directory: str) -> Params:
    """The parameters, with every path that is relative below `directory`."""
    relative = {
        name: os.path.join(directory, value)
        for name, _ in _marks(type(params))
        if isinstance(value := getattr(params, name), str) and value and not os.path.isabs(value)  # noqa: PTH117
    }
    return params.model_copy(update=relative) if relative else params


def _touches(params: Params) -> Iterator[_Touch]:
    for name, mark in _marks(type(params)):
        if (value := getattr(params, name)) is not None:
            silent = _silent.get(str(value))
            touched = silent or waiting.OUTSIDE.submit(_touch, mark, value)
            yield _Touch(name, mark, str(value), touched, silent is None)


def _touch(mark: Outside, value: Any) -> None:
    try:
        mark.touch(value)
    except (NexusError, OSError):
        return  # the call itself tells it


@cache
def _marks(params: type[Params]) -> list[tuple[str, Outside]]:
    return [
        (name, mark)
        for name, info in params.model_fields.items()
        for mark in info.metadata
        if isinstance(mark, Outside)
    ]
