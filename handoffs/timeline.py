"""The reads behind the timeline: the spans of handoffs within a window, from the log.

A window with more steps than one picture can show has an outline: each handoff's last wait and last claim, from its
row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Case, DateTimeField, F, Q, QuerySet, When

from coordination.log.selectors import first_event_at, ids_within, newest_event_id
from coordination.models import Event, Workspace
from handoffs.models import HELD, LIVE, STREAM, Handoff, HandoffStatus
from handoffs.spans import BEGINS, Doing, Span, Step, spans
from nexus.core.clock import now
from nexus.core.database.functions import Seconds
from nexus.core.database.prepared import Select, Slot
from nexus.core.spans import Timed, Window, at_once, longest_and_counts, moment

STEPS = 2_500  # of a window, that are read one by one; of more there is the outline
GOING_ON = 2_000  # handoffs to which nothing happened within it
AT_ONCE = 500  # ids in a query
_STEP = ("handoff_id", "type", "actor_agent_id", "created_at", "event_id")


@dataclass(frozen=True)
class Course:
    """The spans within a window, or their outline where there were more steps than are read."""

    spans: list[Span]
    outline: Outline | None = None


def course(since: datetime, until: datetime, *, cell: timedelta, parts: int, workspace_id: str | None = None) -> Course:
    """Return the spans of the handoffs that touch a window, whole where the log still has their beginning.

    An outline counts spans shorter than half a `cell`, and the waiting handoffs in each of `parts` equal parts.
    """
    first, beyond = ids_within(since, until)
    workspaces = Workspace.objects.filter(pk=workspace_id) if workspace_id else Workspace.objects.all()
    events = Event.objects.filter(workspace__in=workspaces, stream=STREAM, event_id__gte=first, event_id__lt=beyond)
    if events.order_by()[STEPS : STEPS + 1].values("pk"):
        found = outline(since, until, workspace_id=workspace_id, cell=cell, parts=parts)
        return Course(found.spans, found)
    steps = sorted(map(Step._make, events.order_by().values_list(*_STEP)), key=lambda step: step.event_id)
    steps = _as_they_lapsed(steps)
    known = {step.handoff_id: step.type for step in reversed(steps)}  # the first step of each
    begun_before = [handoff_id for handoff_id, type in known.items() if type != "handoff.created"]
    earlier = list(_steps_of([*begun_before, *_going_on(first, until, known, workspace_id)], before=first))
    every = spans([*earlier, *steps], _lapsed())
    return Course([span for span in every if _touches(span, since, until)])


def spans_of(handoff_id: str) -> list[Span]:
    """Return all spans of a handoff, as far back as the log has them."""
    return spans(_steps_of([handoff_id], before=newest_event_id() + 1), _lapsed())


def spans_with(agent_id: str, since: datetime) -> list[Span]:
    """Return what an agent held since a moment, for the newest handoffs that it acted on or holds."""
    first, held = first_event_at(since), Handoff.objects.filter(claimed_by=agent_id, lease_expires_at__isnull=False)
    ids = list(held.values_list("pk", flat=True)[:AT_ONCE])
    if first is not None:
        here = Event.objects.filter(workspace__in=Workspace.objects.all(), stream=STREAM)
        acts = here.filter(event_id__gte=first, actor_agent_id=agent_id, type__in=list(BEGINS)).order_by()
        ids += [pk for pk in acts.values_list("handoff_id", flat=True).distinct()[:AT_ONCE] if pk]
    found = spans(_steps_of(list(dict.fromkeys(ids)), before=newest_event_id() + 1), _lapsed())
    return [span for span in found if span.agent_id == agent_id and _touches(span, since, now())]


def _touches(span: Span, since: datetime, until: datetime) -> bool:
    return (span.start is None or span.start < until) and (span.end is None or span.end > since)


def _lapsed() -> dict[str, datetime]:
    """Return the leases that expired without a record yet, by handoff."""
    return {pk: until for pk, until in Handoff.objects.lapsed(now()).values_list("pk", "lease_expires_at") if until}


def _going_on(first: int, until: datetime, known: Iterable[str], workspace_id: str | None) -> list[str]:
    """Return the handoffs from before an event that were not settled when the window ended."""
    rows = Handoff.objects.filter(Q(status__in=LIVE) | Q(updated_at__gte=until), created_event_id__lt=first)
    if workspace_id:
        rows = rows.filter(workspace_id=workspace_id)
    found = rows.order_by("-created_event_id").values_list("pk", flat=True)[:GOING_ON]
    return [handoff_id for handoff_id in found if handoff_id not in set(known)]


def _steps_of(handoff_ids: list[str], *, before: int) -> Iterator[Step]:
    for start in range(0, len(handoff_ids), AT_ONCE):
        chosen = handoff_ids[start : start + AT_ONCE]
        events = Event.objects.filter(handoff_id__in=chosen, event_id__lt=before, type__in=list(BEGINS))
        yield from _as_they_lapsed([Step(*row) for row in events.order_by("event_id").values_list(*_STEP)])


def _as_they_lapsed(steps: list[Step]) -> list[Step]:
    """Date each expiry to the end of the lease, not to its record, which may come much later."""
    recorded = [step.event_id for step in steps if step.type == "handoff.expired"]
    if not recorded:
        return steps
    payloads = Event.objects.filter(pk__in=recorded).values_list("event_id", "payload")
    at = {event_id: _moment(payload.get("lapsed_at")) for event_id, payload in payloads}
    return [step._replace(at=at.get(step.event_id) or step.at) for step in steps]


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


LONG = 600  # spans shown one by one, the longest


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
    longest, counted = longest_and_counts(_claims_within(rows, window), window, LONG)
    spans = [
        Span(key, Doing.CLAIMED, holder, moment(start), window.ended(end), 0) for holder, key, start, end in longest
    ]
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
