"""The reads behind the timeline: the turns of pool agents, and the times that agents waited for operators.

They come from the rows. If there are more than a picture can show, the longest are returned one by one, and the rest is
counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from django.db.models import F, Q, QuerySet, Value
from django.db.models.functions import Coalesce, Least, Left

from nexus.control.models import Entry, Question, QuestionStatus, Turn, TurnStatus
from nexus.core.clock import now
from nexus.core.database.functions import Seconds
from nexus.core.spans import ChartWindow, longest_and_counts, moment

EACH = 1_200  # turns, and questions, of a window that are returned one by one: the longest
TITLE = 80  # characters of a turn's message
AT_ONCE = 500  # ids in a query


class At(StrEnum):
    """What an agent was doing."""

    TURN = "turn"  # it runs, ended well, or was cancelled
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    ASKING = "asking"  # it waits for an operator


class Stretch(NamedTuple):
    """A period of an agent's activity, from `start` to `end` (None: it goes on); `key` is the id of the turn or
    question."""

    key: str
    doing: At
    agent_id: str
    start: datetime
    end: datetime | None


class SpanCount(NamedTuple):
    """The number of an agent's periods that begin in one cell; cells are numbered since 1970."""

    agent_id: str
    doing: At
    cell: int
    many: int


@dataclass(frozen=True)
class Course:
    """The agents' periods within a window: some one by one, and the others as counts."""

    stretches: list[Stretch]
    counted: list[SpanCount]


def course(since: datetime, until: datetime, *, cell: timedelta, agent_id: str = "") -> Course:
    """Return the turns and questions that touch a window, of all agents or of one."""
    still, seconds = min(until, now()), cell.total_seconds()
    rows = (*_turns(since, still, agent_id), _question_rows(since, still, agent_id))
    found = [_course_of(each, since, still, seconds) for each in rows]
    return Course([each for one in found for each in one.stretches], [each for one in found for each in one.counted])


def _turns(since: datetime, still: datetime, agent_id: str) -> tuple[QuerySet[Any], QuerySet[Any]]:
    """Return the open turns and the ended ones: each set has its own index."""
    rows = Turn.objects.filter(started_at__lt=still).order_by()
    rows = rows.filter(agent__agent_id=agent_id) if agent_id else rows
    rows = rows.annotate(whose=F("agent__agent_id"), start=F("started_at"), end=F("ended_at"), what=F("status"))
    return rows.filter(ended_at=None), rows.filter(ended_at__gt=since)


def _question_rows(since: datetime, still: datetime, agent_id: str) -> QuerySet[Any]:
    """Return questions; an expired one ended when its time was over, whether or not that is recorded."""
    lasts = Q(status=QuestionStatus.ASKED) | Q(ended_at__gt=since)
    rows = Question.objects.filter(lasts, expires_at__gt=since, asked_at__lt=still).order_by()
    rows = rows.filter(agent_id=agent_id) if agent_id else rows
    over = Least(Coalesce("ended_at", "expires_at"), "expires_at")
    return rows.annotate(whose=F("agent_id"), start=F("asked_at"), end=over, what=Value(At.ASKING.value))


def _course_of(rows: QuerySet[Any], since: datetime, still: datetime, cell: float) -> Course:
    timed = rows.values_list("whose", "what", "pk", Seconds(F("start")), Seconds(F("end")))
    spans = [((whose, what), key, start, end) for whose, what, key, start, end in timed]
    counted: Mapping[tuple[tuple[str, str], int], int] = {}
    window = ChartWindow(since.timestamp(), still.timestamp(), cell)
    if len(spans) > EACH:
        spans, counted = longest_and_counts(spans, window, EACH)
    return Course(
        [
            Stretch(key, _doing(what), whose, moment(start), window.ended(end))
            for (whose, what), key, start, end in spans
        ],
        [SpanCount(whose, _doing(what), number, many) for ((whose, what), number), many in counted.items()],
    )


def _doing(what: str) -> At:
    return At(what) if what in (At.FAILED, At.INTERRUPTED, At.ASKING) else At.TURN


def titles(stretches: Collection[Stretch]) -> Mapping[str, str]:
    """Return the titles of stretches, by key: the beginning of a turn's message, or the question."""
    asked = list({each.key for each in stretches if each.doing is At.ASKING})
    turns = list({each.key for each in stretches if each.doing is not At.ASKING})
    found: dict[str, str] = {}
    for first in range(0, len(turns), AT_ONCE):
        rows = Turn.objects.filter(pk__in=turns[first : first + AT_ONCE])
        found |= dict(rows.values_list("pk", Left("content", TITLE)))
    for first in range(0, len(asked), AT_ONCE):
        found |= dict(Question.objects.filter(pk__in=asked[first : first + AT_ONCE]).values_list("pk", "title"))
    return found


def turn(turn_id: str) -> tuple[Turn, int | None] | None:
    """Return a turn with its agent, and the position of its first entry; None if there is no such turn."""
    found = Turn.objects.select_related("agent").filter(pk=turn_id, started_at__isnull=False).first()
    if found is None:
        return None
    first = Entry.objects.filter(agent=found.agent_id, turn=found).order_by("position").values_list("position")
    return found, next((position for (position,) in first[:1]), None)


def doing(turn: Turn) -> At:
    """Return how a turn is shown."""
    return _doing(TurnStatus(turn.status).value)
