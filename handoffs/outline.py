"""The timeline of a window with more steps than one picture can show: each handoff's last wait and last claim, from its
row. Short spans are counted in the cell in which they begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Case, DateTimeField, F, Q, QuerySet, When

from handoffs.models import HELD, LIVE, Handoff, HandoffStatus
from handoffs.spans import Doing, Span
from nexus.core.clock import now
from nexus.core.database.functions import Seconds
from nexus.core.database.prepared import Select, Slot
from nexus.core.spans import Timed, Window, at_once, moment, told_and_counted

LONG = 600  # spans told one by one, the longest


class Counted(NamedTuple):
    """How many short spans of an agent begin in a cell. Cells are numbered since 1970."""

    agent_id: str
    cell: int
    many: int


@dataclass(frozen=True)
class Outline:
    """The long spans of agents, counts of the short ones, and the average number of waiting handoffs in each part."""

    spans: list[Span]
    counted: list[Counted]
    waited: list[float]


# Who has or had it last, its id; in seconds since 1970 when it was created, claimed last, and over.
Row = tuple[str | None, str, float, float | None, float | None]

# When its last claim was over, or its wait where nobody claimed it; one that is open waits still.
_END = Case(
    When(status__in=HELD, then=F("lease_expires_at")),
    When(status=HandoffStatus.OPEN, then=None),
    default=F("updated_at"),
    output_field=DateTimeField(),
)
# As numbers, and of all at once: to make times of them takes many times as long, and so does to sort them there.
_TIMES = [Seconds(each) for each in (F("created_at"), F("claimed_at"), _END)]


def _touching() -> QuerySet[Handoff, Row]:
    going_on = Q(status__in=LIVE) | Q(updated_at__gte=Slot("since"))
    return Handoff.objects.filter(going_on, created_at__lt=Slot("still")).values_list("claimed_by", "pk", *_TIMES)


_all = Select(_touching)
_of_workspace = Select(lambda: _touching().filter(workspace_id=Slot("workspace_id")))


def outline(since: datetime, until: datetime, *, workspace_id: str | None, cell: timedelta, parts: int) -> Outline:
    """Summarize a window: who held what, and how many handoffs waited in each of `parts` equal parts."""
    still = min(until, now())
    if workspace_id:
        rows = _of_workspace(workspace_id=workspace_id, since=since, still=still)
    else:
        rows = _all(since=since, still=still)
    window = Window(since.timestamp(), still.timestamp(), cell.total_seconds())
    told, counted = told_and_counted(_claims_within(rows, window), window, LONG)
    spans = [Span(key, Doing.CLAIMED, holder, moment(start), window.ended(end), 0) for holder, key, start, end in told]
    waited = at_once(_waits(rows, window, (until - since).total_seconds() / parts), parts)
    return Outline(spans, [Counted(*of, many) for of, many in counted.items()], waited)


def _claims_within(rows: Sequence[Row], window: Window) -> list[Timed[str]]:
    """Return the claims that overlap a window."""
    since, still, _ = window
    return [
        (holder, key, claimed, end)
        for holder, key, _, claimed, end in rows
        if holder is not None and claimed is not None and claimed < still and (end is None or end > since)
    ]


def _waits(rows: Sequence[Row], window: Window, part: float) -> Iterator[tuple[float, float]]:
    """Yield when each handoff waited within a window, as start and end in units of `part` seconds."""
    since, still, _ = window
    for _, _, created, claimed, end in rows:
        until = end if claimed is None else claimed
        until = still if until is None or until > still else until
        if until > since:
            yield (created - since if created > since else 0.0) / part, (until - since) / part
