"""The operators' trail: what they do lands in the event log with who did it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from coordination.log.emit import emit
from coordination.log.selectors import newest_event_id
from coordination.models import Event, Stream
from coordination.routing import Strategy, Target, Visibility
from nexus.core.clock import now

NOBODY: Target = {"strategy": Strategy.MIXED.value, "rules": []}  # a union of nothing: operators see it, no agent does


@contextmanager
def acting(operator: str | None, operation: str, **ids: str) -> Iterator[dict[str, str]]:
    """Inside a transaction: append that an operator, where it is one, used a verb of agents, unless the block fails.

    It is about `ids`, to which the block may add. `events` before this one tell what it did: those of the block.
    """
    if operator is None:
        yield ids
        return
    since = newest_event_id()
    yield ids
    told = newest_event_id() - since  # none between is another's: writers take turns
    record(operator, "operator.acted", now(), operation=operation, events=told, **ids)


def record(operator: str, type: str, moment: datetime, **payload: Any) -> Event:
    """Append what an operator did, inside the transaction of the deed. Keep secrets out of `payload`."""
    return emit(
        workspace_id=None,
        stream=Stream.AGENT,
        type=type,
        actor=None,
        payload={**payload, "operator": operator},
        moment=moment,
        visibility=Visibility.PRIVATE,
        target=NOBODY,
    )
