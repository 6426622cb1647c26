"""Fill a store with a history, for the figures that must hold when it has grown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from django.db import models, transaction

from coordination.ids import new_id
from coordination.log.selectors import newest_event_id
from coordination.models import Agent, Event, Workspace
from coordination.services.workspaces import ensure, locate
from handoffs.models import Handoff
from inbox.models import Delivery, Message
from nexus.core.clock import now

BATCH = 5000
STEP = timedelta(seconds=2)  # between one thing and the next


def fill(project: Path, *, agents: int = 20, messages: int = 0, events: int = 0, handoffs: int = 0) -> None:
    """Give the project's workspace this many rows, spread over the time up to now; most of it is settled history."""
    place, moment = locate(str(project)), now()
    with transaction.atomic():
        ensure(place, moment)
    names = [f"agent-{number:03}" for number in range(agents)]
    _write(
        Agent(agent_id=name, role="worker", capabilities=["build"], created_at=moment, updated_at=moment)
        for name in names
    )
    _write(
        _message(place.workspace_id, names, number, moment - STEP * (messages - number)) for number in range(messages)
    )
    sent = Message.objects.filter(workspace_id=place.workspace_id).values_list("message_id", "created_at")
    _write(
        Delivery(
            delivery_id=new_id("dlv"),
            message_id=message_id,
            recipient_id=names[(number + 1) % agents],
            status="unread" if number % 50 == 0 else "read",
            attempts=1,
            delivered_at=created_at,
            read_at=None if number % 50 == 0 else created_at,
            created_at=created_at,
        )
        for number, (message_id, created_at) in enumerate(sent.iterator(BATCH))
    )
    _write(
        Event(
            workspace_id=place.workspace_id,
            stream="workspace" if number % 4 else "handoff",
            type="message.created" if number % 4 else "handoff.created",
            actor_agent_id=names[number % agents],
            payload={"subject": f"Part {number}", "recipients": [names[(number + 1) % agents]]},
            visibility="public",
            created_at=moment - STEP * (events - number),
        )
        for number in range(events)
    )
    newest = newest_event_id()
    _write(
        Handoff(
            handoff_id=new_id("hnd"),
            workspace_id=place.workspace_id,
            from_agent_id=names[number % agents],
            target={"strategy": "capability", "capability": "other"},
            visibility="public",
            status="OPEN" if number % 50 == 0 else "COMPLETED",
            claimed_by=None if number % 50 == 0 else names[(number + 1) % agents],
            created_event_id=-newest - number - 1,  # ids that no event of the log will ever have
            created_at=moment - STEP * (handoffs - number),
            updated_at=moment - STEP * (handoffs - number),
        )
        for number in range(handoffs)
    )
    Workspace.objects.filter(pk=place.workspace_id).update(display_name="filled")


def _message(workspace_id: str, names: list[str], number: int, moment: datetime) -> Message:
    return Message(
        message_id=new_id("msg"),
        workspace_id=workspace_id,
        from_agent_id=names[number % len(names)],
        target={"strategy": "direct", "agent_id": names[(number + 1) % len(names)]},
        subject=f"Part {number}",
        body="Some *text* of the usual length, as agents write it to each other. " * 4,
        created_at=moment,
    )


def _write(rows: Iterable[models.Model]) -> None:
    pending: Iterator[models.Model] = iter(rows)
    while batch := list(islice(pending, BATCH)):
        type(batch[0])._default_manager.bulk_create(batch)
