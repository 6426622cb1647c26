"""The reads behind the timeline: the spans of handoffs within a window, from the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from django.db.models import Q

from coordination.log.selectors import first_event_at, ids_within, newest_event_id
from coordination.models import Event, Workspace
from handoffs.models import LIVE, STREAM, Handoff
from handoffs.spans import BEGINS, HandoffEvent, Span, spans
from nexus.core.clock import now

STEPS = 2_500  # of a window, the newest, that are read
GOING_ON = 2_000  # handoffs to which nothing happened within it
AT_ONCE = 500  # ids in a query
_STEP = ("handoff_id", "type", "actor_agent_id", "created_at", "event_id")


class Course(NamedTuple):
    """The spans within a window; `cut` is when the steps that were read begin, where there were more of them."""

    spans: list[Span]
    cut: datetime | None = None


def course(since: datetime, until: datetime, *, workspace_id: str | None = None) -> Course:
    """Return the spans of the handoffs that touch a window, whole where the log still has their beginning. Of more
    steps than are read, the newest count: the window begins with them."""
    first, beyond = ids_within(since, until)
    workspaces = Workspace.objects.filter(pk=workspace_id) if workspace_id else Workspace.objects.all()
    events = Event.objects.filter(workspace__in=workspaces, stream=STREAM, event_id__gte=first, event_id__lt=beyond)
    if is_cut := bool(events.order_by()[STEPS : STEPS + 1].values("pk")):
        events = events.order_by("-event_id")[:STEPS]
    steps = sorted(map(HandoffEvent._make, events.values_list(*_STEP)), key=lambda step: step.event_id)
    if is_cut:
        since, first = steps[0].at, steps[0].event_id
    steps = _as_they_lapsed(steps)
    known = {step.handoff_id: step.type for step in reversed(steps)}  # the first step of each
    begun_before = [handoff_id for handoff_id, type in known.items() if type != "handoff.created"]
    earlier = list(_steps_of([*begun_before, *_going_on(first, until, known, workspace_id)], before=first))
    every = spans([*earlier, *steps], _lapsed())
    return Course([span for span in every if _touches(span, since, until)], since if is_cut else None)


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


def _steps_of(handoff_ids: list[str], *, before: int) -> Iterator[HandoffEvent]:
    for start in range(0, len(handoff_ids), AT_ONCE):
        chosen = handoff_ids[start : start + AT_ONCE]
        events = Event.objects.filter(handoff_id__in=chosen, event_id__lt=before, type__in=list(BEGINS))
        yield from _as_they_lapsed([HandoffEvent(*row) for row in events.order_by("event_id").values_list(*_STEP)])


def _as_they_lapsed(steps: list[HandoffEvent]) -> list[HandoffEvent]:
    """Date each expiry to the end of the lease, not to its record, which may come much later."""
    recorded = [step.event_id for step in steps if step.type == "handoff.expired"]
    if not recorded:
        return steps
    payloads = Event.objects.filter(pk__in=recorded).values_list("event_id", "payload")
    at = {event_id: _moment(payload.get("lapsed_at")) for event_id, payload in payloads}
    return [step._replace(at=at.get(step.event_id) or step.at) for step in steps]


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
