"""Keep agents present as long as their connections are open: they may think for minutes between two calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from coordination.services import sessions
from nexus.core.background_work import Work
from nexus.core.operations.runner import joined_as

_open: Counter[str] = Counter()  # by connection, its streams and calls under way; on the event loop alone


@contextmanager
def connected(connection: str | None) -> Iterator[None]:
    """Count a connection as open inside the block; None is no connection."""
    if connection is None:
        yield
        return
    _open[connection] += 1
    try:
        yield
    finally:
        _open[connection] -= 1
        if not _open[connection]:
            del _open[connection]


class Presence(Work[list[str], None]):
    """Renew the heartbeats of the agents that joined on an open connection."""

    name = "presence"
    tick_seconds = 10.0

    def lanes(self) -> Sequence[str]:
        return ["sessions"] if _open else []

    def claim(self, lane: str) -> list[str]:
        return [joined.session_id for each in [*_open] if (joined := joined_as(each))]

    def act(self, item: list[str]) -> None:
        if item:
            sessions.keep_present(item)

    def settle(self, item: list[str], outcome: None) -> bool:
        return False  # once per tick


PRESENCE = Presence()
