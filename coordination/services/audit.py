"""The operators' trail: what they do lands in the event log with who did it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordination.log.emit import emit
from coordination.log.selectors import newest_event_id
from coordination.models import Event, Stream
from coordination.routing import Strategy, Target, Visibility
from core.clock import now

NOBODY: Target = {"strategy": Strategy.MIXED.value, "rules": []}  # a union of nothing: operators see it, no agent does


def acted(operator: str, operation: str, *, since: int, **about: Any) -> Event:
    """Append that an operator used a verb of agents, inside its transaction; `events` before this one, those behind
    the event `since`, tell what it did."""
    told = newest_event_id() - since  # none between is another's: writers take turns
    return record(operator, "operator.acted", now(), operation=operation, events=told, **about)


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
