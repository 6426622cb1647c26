"""What a call names outside the store is touched first, where nobody waits for it but that call."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import cache
from typing import Any

from core import waiting
from core.operations.errors import NexusError
from core.operations.parameters import Outside, Params

PATIENCE_SECONDS = 5.0

_silent: dict[Any, Future[object]] = {}  # what did not answer in time, and still has not


async def reach(params: Params) -> None:
    """Return once everything outside the store that a call names has answered, with an error or without.

    Raises the error that a parameter declares when it does not, at once where it did not the last time either.
    """
    for name, mark in _marks(type(params)):
        value = getattr(params, name)
        if value is None:
            continue
        touched = _silent.get(value)
        if touched is None:
            touched = waiting.OUTSIDE.submit(_touch, mark, value)
            await asyncio.wait([asyncio.wrap_future(touched)], timeout=PATIENCE_SECONDS)
        if not touched.done() and not touched.cancel():
            _silent[value] = touched
            touched.add_done_callback(lambda _, value=value: _silent.pop(value, None))  # type: ignore[misc]
        if not touched.done() or touched.cancelled():
            raise NexusError(
                mark.silent,
                f"What {name} leads to does not answer; is it on a mount whose server is gone?",
                {"field": name},
            )


def _touch(mark: Outside, value: Any) -> None:
    try:
        mark.touch(value)
    except NexusError:
        return  # the call itself tells it


@cache
def _marks(params: type[Params]) -> list[tuple[str, Outside]]:
    return [
        (name, mark)
        for name, info in params.model_fields.items()
        for mark in info.metadata
        if isinstance(mark, Outside)
    ]
