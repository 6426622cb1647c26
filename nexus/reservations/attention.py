"""The reservations that a person must look at, and the actions on them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from itertools import groupby

from coordination.debts import Debt
from handoffs.attention import debtors
from handoffs.debts import patience
from inbox.monitoring import Picture
from nexus.core.contributions import Action, AttentionItem, AttentionKind, Found
from nexus.reservations import questions
from nexus.reservations.models import Reservation
from nexus.reservations.questions import Question


def _unanswered_requests(picture: Picture, each: int) -> Found:
    """Find reservations that others requested long ago and whose holder neither releases them nor writes to them. A
    holder that does nothing at all is listed with its debts instead."""
    rows, idle = questions.wanted(picture.moment), picture.once(debtors)
    waiting = questions.unanswered([row for row in rows if row.agent_id not in idle], until=picture.moment - patience())
    needs = [_need(row, list(these)) for row, these in groupby(waiting, key=lambda question: question.row)]
    return Found(len(needs), needs[:each], or_more=len(rows) == questions.EXAMINED)


def _need(row: Reservation, waiting: Sequence[Question]) -> AttentionItem:
    names = ", ".join(question.agent_id for question in waiting)
    detail = f"{row.agent_id} holds it and has not answered {names[:200]}"
    return AttentionItem(row.pattern, detail, row.pk, since=min(question.at for question in waiting))


def _patterns(reservation_ids: Sequence[str]) -> dict[str, str]:
    return dict(Reservation.objects.filter(pk__in=reservation_ids).values_list("pk", "pattern"))


KINDS = (
    AttentionKind(
        "asked-files",
        "Asked for files, and not answered",
        "edit_document",
        52,
        _unanswered_requests,
        page="reservation",
        actions=("files_end",),
        command="nexus reservations",
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
        asks={"reason": "Why (sent to its holder)"},
        toolset="files",
    ),
)


def owed(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """Yield a debt for each requested reservation, to the agent that asked first."""
    waiting = questions.unanswered(questions.wanted(moment, agents), until=moment)
    for row, these in groupby(waiting, key=lambda question: question.row):
        first = min(these, key=lambda question: question.at)
        yield Debt(row.agent_id, "question", row.pk, row.pattern, first.agent_id, first.at, row.workspace_id)
