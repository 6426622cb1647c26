"""The reservations that a person must look at, and the actions on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

from coordination.debts import Debt
from coordination.ids import id_floor
from coordination.models import Event
from handoffs.attention import debtors
from handoffs.debts import PATIENCE
from inbox.models import Message
from inbox.monitoring import Picture
from nexus.core.contributions import Action, AttentionItem, AttentionKind, Items
from nexus.reservations import selectors
from nexus.reservations.models import STREAM, Reservation


def _unanswered_requests(picture: Picture, each: int) -> Items:
    """Find reservations that others requested long ago and whose holder neither releases them nor writes to them. A
    holder that does nothing at all is listed with its debts instead."""
    rows, idle = requested(picture.moment), picture.once(debtors)
    waiting = unanswered(
        [row for row in rows if row.agent_id not in idle and picture.includes(row.workspace_id)],
        until=picture.moment - PATIENCE,
    )
    needs = [_need(row, list(these)) for row, these in groupby(waiting, key=lambda question: question.row)]
    return Items(len(needs), needs[:each], or_more=len(rows) == EXAMINED)


def _need(row: Reservation, waiting: Sequence[FileRequest]) -> AttentionItem:
    names = ", ".join(question.agent_id for question in waiting)
    detail = f"{row.agent_id} holds it and has not answered {names[:200]}"
    return AttentionItem(row.pattern, detail, row.pk, since=min(question.at for question in waiting))


def _refused(picture: Picture, each: int) -> Items:
    """Find reservations for which the guard refused others' commits or pushes, or found them afterwards."""
    rows = selectors.held(picture.moment).exclude(refused=[]).order_by("created_at", "pk")
    found = [row for row in rows[:EXAMINED] if picture.includes(row.workspace_id)]
    needs = [
        AttentionItem(
            row.pattern,
            f"{row.agent_id} holds it; {_what_others_did(left)[:300]}",
            row.pk,
            since=datetime.fromisoformat(left[0]["at"]),
        )
        for row in found
        if (left := [it for it in row.refused if not it.get("dismissed")])
    ]
    return Items(len(needs), needs[:each], or_more=len(found) == EXAMINED)


def _what_others_did(refusals: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for how, passed in (("refused", False), ("made past the guard", True)):
        these = [it for it in refusals if it.get("passed", False) is passed]
        said = ", ".join(f"a {it['verb']} of {it['agent_id'] or 'a person'}" for it in these)
        parts += [f"{how}: {said}"] if said else []
    return "; ".join(parts)


def _patterns(reservation_ids: Sequence[str]) -> dict[str, str]:
    return dict(Reservation.objects.filter(pk__in=reservation_ids).values_list("pk", "pattern"))


KINDS = (
    AttentionKind(
        "refused",
        "Refused commits",
        "gpp_maybe",
        45,
        _refused,
        page="files_reservation_change",
        actions=("files_end", "files_dismiss_refusals"),
        command="nexus reservations",
    ),
    AttentionKind(
        "asked-files",
        "Asked for files, and not answered",
        "edit_document",
        54,
        _unanswered_requests,
        page="files_reservation_change",
        actions=("files_end",),
        command="nexus reservations",
    ),
)

ACTIONS = (
    Action(
        "files_dismiss_refusals",
        "Dismiss",
        "dismissed",
        ("refusal", "refusals"),
        lambda reservation_id: {"reservation_id": reservation_id},
        _patterns,
        toolset="files",
    ),
    Action(
        "files_end",
        "End the reservation…",
        "ended",
        ("reservation", "reservations"),
        lambda reservation_id: {"reservation_id": reservation_id},
        _patterns,
        asks={"reason": "Why (sent to its holder)"},
        toolset="files",
    ),
)


def reservation_debts(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """Yield a debt for each requested reservation, to the agent that asked first."""
    waiting = unanswered(requested(moment, agents), until=moment)
    for row, these in groupby(waiting, key=lambda question: question.row):
        first = min(these, key=lambda question: question.at)
        yield Debt(row.agent_id, "question", row.pk, row.pattern, first.agent_id, first.at, row.workspace_id)


EXAMINED = 200  # the oldest requested reservations
HOUR = timedelta(hours=1)
LOOKED_BACK = 2_000  # the newest requests, and messages of holders


class FileRequest(NamedTuple):
    """An agent's request to the holder of a reservation."""

    row: Reservation
    agent_id: str
    at: datetime


def requested(moment: datetime, holders: Collection[str] | None = None) -> list[Reservation]:
    """Return the reservations that others requested, of some holders or of all, oldest first, at most EXAMINED."""
    rows = selectors.held(moment).exclude(asked_by=[])
    if holders is not None:
        rows = rows.filter(agent_id__in=holders)
    return list(rows.order_by("created_at", "pk")[:EXAMINED])


def unanswered(rows: Sequence[Reservation], *, until: datetime) -> list[FileRequest]:
    """Return the requests for each of them until a moment whose sender the holder has not written to since."""
    asked = [question for question in _requests(rows) if question.at <= until]
    wrote = _wrote(asked)
    return [each for each in asked if wrote.get((each.row.agent_id, each.agent_id), each.at) <= each.at]


def _requests(rows: Sequence[Reservation]) -> Iterator[FileRequest]:
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
            yield FileRequest(row, name, max(at.get((name, row.agent_id, row.pattern), row.created_at), row.created_at))


def _wrote(asked: Sequence[FileRequest]) -> Mapping[tuple[str, str], datetime]:
    """Return when each holder last wrote to each agent that asked, since the first request."""
    if not asked:
        return {}
    since, holders = min(question.at for question in asked), {question.row.agent_id for question in asked}
    about = id_floor("msg", since - HOUR)  # narrows by the index; the time decides
    sent = Message.objects.filter(from_agent_id__in=holders, pk__gte=about, created_at__gt=since)
    pairs = sent.order_by("-pk").values_list("from_agent_id", "deliveries__recipient_id", "created_at")[:LOOKED_BACK]
    return {(sender, recipient): at for sender, recipient, at in reversed(pairs)}
