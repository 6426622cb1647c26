"""What agents asked holders of files, and the holders have not answered: neither given up nor written about."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from coordination.ids import id_floor
from coordination.models import Event
from inbox.models import Message
from nexus.reservations import selectors
from nexus.reservations.models import STREAM, Reservation

EXAMINED = 200  # reservations that others asked for, the oldest
HOUR = timedelta(hours=1)
LOOKED_BACK = 2_000  # questions, and messages of holders, the newest


class Question(NamedTuple):
    """An agent asked the holder of a reservation for it."""

    row: Reservation
    agent_id: str
    at: datetime


def wanted(moment: datetime, holders: Collection[str] | None = None) -> list[Reservation]:
    """The reservations that others asked for, of some holders or of all, the oldest first: EXAMINED of them."""
    rows = selectors.held(moment).exclude(asked_by=[])
    if holders is not None:
        rows = rows.filter(agent_id__in=holders)
    return list(rows.order_by("created_at", "pk")[:EXAMINED])


def unanswered(rows: Sequence[Reservation], *, until: datetime) -> list[Question]:
    """Who asked for each of them by then, and was not written to by the holder since."""
    asked = [question for question in _requests(rows) if question.at <= until]
    wrote = _wrote(asked)
    return [each for each in asked if wrote.get((each.row.agent_id, each.agent_id), each.at) <= each.at]


def _requests(rows: Sequence[Reservation]) -> Iterator[Question]:
    """Who asked for each of them when; as old as the reservation where the log does not say."""
    places = {row.workspace_id for row in rows}
    events = Event.objects.filter(workspace_id__in=places, stream=STREAM, type="file.asked").order_by("-event_id")
    told = list(events.values_list("actor_agent_id", "payload", "created_at")[:LOOKED_BACK]) if rows else []
    at = {
        (actor, payload.get("holder"), pattern): moment
        for actor, payload, moment in told
        for pattern in payload.get("patterns", ())
    }
    for row in rows:
        for name in row.asked_by:
            yield Question(row, name, max(at.get((name, row.agent_id, row.pattern), row.created_at), row.created_at))


def _wrote(asked: Sequence[Question]) -> Mapping[tuple[str, str], datetime]:
    """By holder and who asked, when the one last wrote to the other since the first question."""
    if not asked:
        return {}
    since, holders = min(question.at for question in asked), {question.row.agent_id for question in asked}
    about = id_floor("msg", since - HOUR)  # by the index; what counts is the time
    sent = Message.objects.filter(from_agent_id__in=holders, pk__gte=about, created_at__gt=since)
    pairs = sent.order_by("-pk").values_list("from_agent_id", "deliveries__recipient_id", "created_at")[:LOOKED_BACK]
    return {(sender, recipient): at for sender, recipient, at in reversed(pairs)}
