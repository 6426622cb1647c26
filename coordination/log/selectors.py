"""The reads of the event log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, QuerySet

from coordination.models import Event
from coordination.routing import Profile, can_see
from coordination.selectors import profile_of
from core.clock import now

EVENTS_AT_ONCE = 500
EXAMINED_AT_ONCE = 2_000  # events a read holds against an agent, seen or not
FILTERED_AT_ONCE = 50_000  # events a read passes to the filters
EXAMINED = 50_000  # events looked through for those of one agent


def newest_event_id(**where: str) -> int:
    """The id of the newest event, of the whole log or of those with these columns; 0 when there is none."""
    return Event.objects.filter(**where).aggregate(newest=Max("event_id"))["newest"] or 0


@dataclass(frozen=True)
class EventPage:
    """A page of the log and where the next one starts."""

    events: list[Event]
    next_cursor: int
    has_more: bool


def event_page(
    *, workspace_id: str, agent_id: str, stream: str, cursor: int, limit: int, filters: Mapping[str, str]
) -> EventPage:
    """The events after `cursor` that match the filters and that `agent_id` may see (contract: event_get).

    next_cursor passes every event examined, so that none is examined twice. has_more tells of a visible one beyond, or
    that the look ended before the log did: a reader of 200,000 invisible events holds up nobody, it goes on from there.
    """
    agent, moment = profile_of(agent_id), now()
    # The head bounds the scan: what is committed meanwhile is the next page's.
    head = newest_event_id(workspace_id=workspace_id, stream=stream)
    columns = _columns(filters)
    scope = Event.objects.filter(workspace_id=workspace_id, stream=stream, event_id__lte=head).order_by("event_id")
    end = _end_of_look(scope.filter(event_id__gt=cursor)) if columns else None
    matching = scope.filter(**columns) if end is None else scope.filter(event_id__lte=end, **columns)
    found: list[Event] = []
    examined, left, size = cursor, EXAMINED_AT_ONCE, limit + 1
    while batch := list(matching.filter(event_id__gt=examined)[: min(size, left, EVENTS_AT_ONCE)]):
        for event in batch:
            if event_visible(event, workspace_id, agent, moment):
                if len(found) == limit:
                    return EventPage(found, examined, has_more=True)
                found.append(event)
            examined = event.event_id
        left, size = left - len(batch), 2 * size  # few are read for a small page, and many once they are not for it
        if not left:
            return EventPage(found, examined, has_more=examined < head)
    if end is not None:
        return EventPage(found, end, has_more=True)
    return EventPage(found, max(cursor, head), has_more=False)


def _end_of_look(events: QuerySet[Event]) -> int | None:
    """The last of the events that may be passed to the filters at once; None when the filters may have them all."""
    return events.values_list("event_id", flat=True)[FILTERED_AT_ONCE:].first()


def event_visible(event: Event, workspace_id: str, agent: Profile, moment: datetime) -> bool:
    """Whether an agent, looking from a workspace, sees an event."""
    return can_see(
        visibility=event.visibility,
        target=event.target,
        actor=event.actor_agent_id,
        item_workspace=event.workspace_id,
        workspace=workspace_id,
        agent=agent,
        created_at=event.created_at,
        now=moment,
    )


def event_interest(workspace_id: str, stream: str, filters: Mapping[str, str]) -> Callable[[Event], bool]:
    """A predicate over new events: worth another look for a wait on this stream with these filters."""
    columns = _columns(filters)

    def interested(event: Event) -> bool:
        return (
            event.workspace_id == workspace_id
            and event.stream == stream
            and all(getattr(event, name) == value for name, value in columns.items())
        )

    return interested


def _columns(filters: Mapping[str, str]) -> dict[str, str]:
    """The columns that the filters of event_get stand for."""
    return {"actor_agent_id" if name == "agent_id" else name: value for name, value in filters.items()}


def events_after(event_id: int, limit: int) -> Sequence[Event]:
    """The next events of the whole log, in order."""
    return list(Event.objects.filter(event_id__gt=event_id).order_by("event_id")[:limit])


def events_by(agent_id: str, limit: int, *, after: int | None = None) -> list[Event]:
    """What an agent did last, newest first, among the newest events of the log (or those after an id)."""
    newest = Event.objects.order_by("-event_id").values_list("event_id", flat=True).first() or 0
    since = max(newest - EXAMINED, 0) if after is None else after
    return list(Event.objects.filter(event_id__gt=since, actor_agent_id=agent_id).order_by("-event_id")[:limit])


def recent_events(limit: int, *, workspace_id: str | None = None) -> list[Event]:
    """The newest events, newest first."""
    rows = Event.objects.filter(workspace_id=workspace_id) if workspace_id else Event.objects.all()
    return list(rows.select_related("workspace").order_by("-event_id")[:limit])
