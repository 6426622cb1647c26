"""What of the reservations needs a person, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import NamedTuple

from coordination.models import Event
from core.contributions import Action, Found, Need, NeedKind
from files import selectors
from files.models import STREAM, Reservation
from handoffs.debts import patience
from inbox.models import Message
from inbox.picture import Picture

EXAMINED = 200  # reservations that others asked for, the oldest
LOOKED_BACK = 2_000  # questions, and messages of holders, the newest


class Question(NamedTuple):
    """An agent asked the holder of a reservation for it."""

    row: Reservation
    agent_id: str
    at: datetime


def _asked(picture: Picture, each: int) -> Found:
    """What others asked for long ago, and whose holder neither gives it up nor writes to them."""
    wanted = selectors.held(picture.moment).exclude(asked_by=[]).order_by("created_at", "pk")
    rows = list(wanted[:EXAMINED])
    asked = [question for question in _questions(rows) if question.at <= picture.moment - patience()]
    wrote = _wrote(asked)
    waiting = [each for each in asked if wrote.get((each.row.agent_id, each.agent_id), each.at) <= each.at]
    needs = [_need(row, list(these)) for row, these in groupby(waiting, key=lambda question: question.row)]
    return Found(len(needs), needs[:each], or_more=len(rows) == EXAMINED)


def _need(row: Reservation, waiting: Sequence[Question]) -> Need:
    names = ", ".join(question.agent_id for question in waiting)
    detail = f"{row.agent_id} holds it and has not answered {names[:200]}"
    return Need(row.pattern, detail, row.pk, since=min(question.at for question in waiting))


def _questions(rows: Sequence[Reservation]) -> Iterator[Question]:
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
    sent = Message.objects.filter(from_agent_id__in=holders, created_at__gt=since).order_by("-created_at")
    pairs = sent.values_list("from_agent_id", "deliveries__recipient_id", "created_at")[:LOOKED_BACK]
    return {(sender, recipient): at for sender, recipient, at in reversed(pairs)}


def _patterns(reservation_ids: Sequence[str]) -> dict[str, str]:
    return dict(Reservation.objects.filter(pk__in=reservation_ids).values_list("pk", "pattern"))


KINDS = (
    NeedKind(
        "asked-files",
        "Asked for files, and not answered",
        "edit_document",
        52,
        _asked,
        page="reservation",
        actions=("files_end",),
        command="nexus files",
    ),
)

ACTIONS = (
    Action(
        "files_end",
        "End it…",
        "ended",
        ("reservation", "reservations"),
        lambda reservation_id: {"reservation_id": reservation_id},
        _patterns,
        asks={"reason": "Why (its holder is told)"},
        toolset="files",
    ),
)
