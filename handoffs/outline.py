"""The timeline of a window with more steps than one picture takes: each handoff as it waited and as it was held last,
from its row, and summed up by the database. What is short is counted by the cell that it begins in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import NamedTuple

from django.db.models import Case, Count, DateTimeField, F, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce, Greatest, Least

from core.clock import now
from core.database.functions import Seconds, Whole
from handoffs.models import HELD, LIVE, Handoff, HandoffStatus
from handoffs.spans import Doing, Span

LONG = 600  # spans told one by one, the longest


class Counted(NamedTuple):
    """So many short spans of an agent begin in a cell, which are numbered since 1970."""

    agent_id: str
    cell: int
    many: int


@dataclass(frozen=True)
class Outline:
    """The long spans of agents, the others as counts, and how many handoffs waited, on average, in each part."""

    spans: list[Span]
    counted: list[Counted]
    waited: list[float]


def outline(since: datetime, until: datetime, *, workspace_id: str | None, cell: timedelta, parts: int) -> Outline:
    """What went on in a window: who held what, and how many waited in each of so many equal parts of it."""
    still = min(until, now())
    rows = Handoff.objects.filter(Q(status__in=LIVE) | Q(updated_at__gte=since), created_at__lt=still)
    if workspace_id:
        rows = rows.filter(workspace_id=workspace_id)
    spans, counted = _held(rows, since, still, cell.total_seconds())
    return Outline(spans, counted, _waited(rows, since, still, (until - since).total_seconds() / parts, parts))


_END_OF_CLAIM = Case(
    When(status__in=HELD, then=F("lease_expires_at")), default=F("updated_at"), output_field=DateTimeField()
)
# It waits until it is claimed last, or else settled; one that is open still does.
_END_OF_WAIT = Case(
    When(status=HandoffStatus.OPEN, then=None),
    When(claimed_at__isnull=False, then=F("claimed_at")),
    default=F("updated_at"),
    output_field=DateTimeField(),
)


def _held(rows: QuerySet[Handoff], since: datetime, still: datetime, cell: float) -> tuple[list[Span], list[Counted]]:
    """The claims that last: those that are seen by themselves, and how many of the others begin in each cell."""
    start = Greatest(Seconds(F("claimed_at")), Value(since.timestamp()))
    lasted = Least(Seconds(_END_OF_CLAIM), Value(still.timestamp())) - start
    held = rows.annotate(end=_END_OF_CLAIM).filter(claimed_by__isnull=False, claimed_at__lt=still, end__gt=since)
    held = held.annotate(lasted=lasted)
    longest = held.filter(lasted__gte=cell / 2).order_by("-lasted")
    told = list(longest.values_list("pk", "claimed_by", "claimed_at", "end", "lasted")[: LONG + 1])
    if len(told) > LONG:  # what lasted as long as the first that is left out is counted with it
        shortest = told[-1][-1]
        told = [row for row in told if row[-1] > shortest]
        short = held.filter(lasted__lte=shortest)
    else:
        short = held.filter(lasted__lt=cell / 2)
    counts = short.values_list("claimed_by", Whole(start / Value(cell))).annotate(Count("pk")).order_by()
    spans = [
        Span(pk, Doing.CLAIMED, holder, claimed_at, end if end <= still else None, 0)
        for pk, holder, claimed_at, end, _ in told
    ]
    return spans, [Counted(*row) for row in counts]


def _waited(rows: QuerySet[Handoff], since: datetime, still: datetime, width: float, parts: int) -> list[float]:
    """How many waited on average, from where their waits began and ended."""
    first = Value(since.timestamp())
    start = (Greatest(Seconds(F("created_at")), first) - first) / Value(width)
    last = Value((still - since).total_seconds() / width)
    end = Coalesce(Least((Seconds(F("end")) - first) / Value(width), last), last)
    waiting = rows.annotate(end=_END_OF_WAIT).filter(Q(end=None) | Q(end__gt=since))
    edges = waiting.values_list(Whole(start), Whole(end)).annotate(Count("pk"), starts=Sum(start), ends=Sum(end))
    return levels(edges.order_by(), parts)


def levels(edges: Iterable[tuple[int, int, int, float, float]], parts: int) -> list[float]:
    """How many there were at once, on average, in each part, from: in which part they began, in which they ended, how
    many they were, and the sums of where they began and ended, in parts."""
    within, after = [0.0] * (parts + 1), [0] * (parts + 2)
    for began, ended, count, starts, ends in edges:
        within[began] += count * (began + 1) - starts
        after[began + 1] += count
        ended = min(ended, parts)
        within[ended] -= count * (ended + 1) - ends
        after[ended + 1] -= count
    return [max(0.0, level + part) for level, part in zip(accumulate(after[:parts]), within, strict=False)]
