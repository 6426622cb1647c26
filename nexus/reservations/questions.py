"""Requests for reservations that their holders have not answered: neither released nor written about."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from coordination.ids import id_floor
from coordination.models import Event
from inbox.models import Message
from nexus.reservations import selectors
from nexus.reservations.models import STREAM, Reservation

EXAMINED = 200  # the oldest requested reservations
HOUR = timedelta(hours=1)
LOOKED_BACK = 2_000  # the newest requests, and messages of holders


class Question(NamedTuple):
    """An agent's request to the holder of a reservation."""

    row: Reservation
    agent_id: str
    at: datetime


def wanted(moment: datetime, holders: Collection[str] | None = None) -> list[Reservation]:
    """Return the reservations that others requested, of some holders or of all, oldest first, at most EXAMINED."""
    rows = selectors.held(moment).exclude(asked_by=[])
    if holders is not None:
        rows = rows.filter(agent_id__in=holders)
    return list(rows.order_by("created_at", "pk")[:EXAMINED])


def unanswered(rows: Sequence[Reservation], *, until: datetime) -> list[Question]:
    """Return the requests for each of them until a moment whose sender the holder has not written to since."""
    asked = [question for question in _requests(rows) if question.at <= until]
    wrote = _wrote(asked)
    return [each for each in asked if wrote.get((each.row.agent_id, each.agent_id), each.at) <= each.at]


def _requests(rows: Sequence[Reservation]) -> Iterator[Question]:
    """Yield who requested each of them, and when; the time of the reservation where the log does not say."""
    workspaces = {row.workspace_id for row in rows}
    events = Event.objects.filter(workspace_id__in=workspaces, stream=STREAM, type="file.asked").order_by("-event_id")
    rows_of_log = list(events.values_list("actor_agent_id", "payload", "created_at")[:LOOKED_BACK]) if rows else []
    at = {
        (actor, payload.get("holder"), pattern): moment
        for actor, payload, moment in rows_of_log
        for pattern in payload.get("patterns", ())
    }
    for row in rows:
        for name in row.asked_by:
            yield Question(row, name, max(at.get((name, row.agent_id, row.pattern), row.created_at), row.created_at))


def _wrote(asked: Sequence[Question]) -> Mapping[tuple[str, str], datetime]:
    """Return when each holder last wrote to each agent that asked, since the first request."""
    if not asked:
        return {}
    since, holders = min(question.at for question in asked), {question.row.agent_id for question in asked}
    about = id_floor("msg", since - HOUR)  # narrows by the index; the time decides
    sent = Message.objects.filter(from_agent_id__in=holders, pk__gte=about, created_at__gt=since)
    pairs = sent.order_by("-pk").values_list("from_agent_id", "deliveries__recipient_id", "created_at")[:LOOKED_BACK]
    return {(sender, recipient): at for sender, recipient, at in reversed(pairs)}
