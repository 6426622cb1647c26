"""Writes to the event log, always inside the transaction of the change that the event records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache, partial
from typing import Any

from django.db import transaction
from django.dispatch import Signal

from coordination.models import Event, VisibilityChoices
from coordination.routing import Target
from nexus.core.apps import nexus_apps
from nexus.core.database.sql import append
from nexus.core.operations.errors import Code, NexusError
from nexus.core.waiting import announce_commit

VISIBILITIES = frozenset(VisibilityChoices.values)  # a constant, because Django computes the values at each access

committed = Signal(use_caching=True)  # sent in this process, with the `event`, once its transaction is committed


def emit(
    *,
    workspace_id: str | None,
    stream: str,
    type: str,
    actor: str | None,
    payload: Mapping[str, Any],
    moment: datetime,
    visibility: str = VisibilityChoices.PUBLIC,
    target: Target | None = None,
    handoff_id: str | None = None,
    trace_id: str | None = None,
    numbered: bool = False,
) -> Event:
    """Append one event; `workspace_id` is None for an event that belongs to no workspace. Its payload repeats a trace.
    It may get its id only at the commit, unless it is `numbered`.

    Raises INTERNAL_ERROR, before anything is written, for an event that readers could not understand.
    """
    if stream not in streams() or visibility not in VISIBILITIES or not type.strip():
        raise NexusError(
            Code.INTERNAL_ERROR,
            "An event outside the vocabulary was refused.",
            {"stream": stream, "visibility": visibility, "type": type},
        )
    event = Event(
        workspace_id=workspace_id,
        stream=stream,
        type=type,
        actor_agent_id=actor,
        payload={**payload, **({} if trace_id is None else {"trace_id": trace_id})},
        visibility=visibility,
        target=target,
        handoff_id=handoff_id,
        trace_id=trace_id,
        created_at=moment,
    )
    append(event, numbered=numbered)
    transaction.on_commit(partial(_announce, event))
    return event


def _announce(event: Event) -> None:
    committed.send_robust(Event, event=event)
    announce_commit(event)  # last: a woken reader must see all changes


@cache
def streams() -> dict[str, str]:
    """Return every stream with its description, by name."""
    return {name: holds for app in nexus_apps() for name, holds in app.streams().items()}
