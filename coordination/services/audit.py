"""The operators' audit trail: the event log records what they do, and who did it."""

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

NOBODY: Target = {"strategy": Strategy.MIXED.value, "rules": []}  # an empty union: operators see it, no agent does


@contextmanager
def acting(operator: str | None, operation: str, **ids: str) -> Iterator[dict[str, str]]:
    """Record at the end of the block that an operator used an operation of agents, unless the block fails or
    `operator` is None. Use it inside a transaction.

    The block may add to the recorded `ids`, which it gets. `events` counts the block's own events: those just before.
    """
    if operator is None:
        yield ids
        return
    since = newest_event_id()
    yield ids
    count = newest_event_id() - since  # all are this writer's: writers take turns
    record(operator, "operator.acted", now(), operation=operation, events=count, **ids)


def record(operator: str, type: str, moment: datetime, **payload: Any) -> Event:
    """Append what an operator did, inside the transaction of the act. Keep secrets out of `payload`."""
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
