"""The progress of a long command, on stderr; a short one prints nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

QUIET_SECONDS = 2.0


class OutputStream(Protocol):
    """The common part of a command's stdout and stderr."""

    def write(self, text: str) -> object:
        """Write one line."""


class Bar:
    """A progress line with the percentage, or the seconds so far, written at most every two seconds."""

    def __init__(self, stream: OutputStream, what: str) -> None:
        self._stream, self._what, self._last = stream, what, time.monotonic()
        self._began = self._last

    def __call__(self, status: int, remaining: int, total: int) -> None:
        if total:
            self._print(f"{100 * (total - remaining) // total} %")

    def still(self, step: str) -> None:
        """Report that a step goes on whose remaining time nobody knows."""
        self._print(f"{step}, {time.monotonic() - self._began:.0f} s so far")

    def _print(self, how_far: str) -> None:
        if time.monotonic() - self._last >= QUIET_SECONDS:
            self._last = time.monotonic()
            self._stream.write(f"{self._what}: {how_far}")


@contextmanager
def at_work(stream: OutputStream, what: str) -> Iterator[None]:
    """Write every two seconds that work goes on. Nobody knows how much of it is left."""
    bar, ended = Bar(stream, what), threading.Event()

    def tell() -> None:
        while not ended.wait(QUIET_SECONDS):
            bar.still("at work")

    telling = threading.Thread(target=tell, daemon=True)
    telling.start()
    try:
        yield
    finally:
        ended.set()
        telling.join()
