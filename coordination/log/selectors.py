"""The reads of the event log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product

from django.db.models import F, OuterRef, Subquery

from coordination import sql
from coordination.models import Event
from coordination.routing import Profile, is_shown_to, only_shown_to
from coordination.selectors import profile_of
from nexus.core.clock import now
from nexus.core.database.keys import number_of
from nexus.core.domain import ANY
from nexus.core.size_limits import fitting
from nexus.core.waiting import Interest

EVENTS_AT_ONCE = 500
EXAMINED_AT_ONCE = 2_000  # events that one read checks for visibility
FILTERED_AT_ONCE = 10_000  # events that one read passes to the filters; on a large log each may be on a page of its own
EXAMINED = 50_000  # events that are searched for those of one agent

EVERYBODY = ("everybody",)  # in the keys of events; like ANY, it equals no text


def newest_event_id(**where: str) -> int:
    """Return the id of the newest event, of the whole log or of those with these columns; 0 when there is none."""
    newest = sql.newest_event(tuple(sorted(where))).first(**_stored(where))
    return newest[0] if newest else 0


def _stored(where: Mapping[str, str]) -> dict[str, str | int]:
    """Return the values of columns as events hold them: of a workspace its number."""
    return {name: number_of(value) if name == "workspace_id" else value for name, value in where.items()}


@dataclass(frozen=True)
class EventPage:
    """A page of the log and where the next one starts."""

    events: list[Event]
    next_cursor: int
    has_more: bool


def event_page(
    *, workspace_id: str, agent_id: str, stream: str, cursor: int, limit: int, filters: Mapping[str, str]
) -> EventPage:
    """Return the events after `cursor` that match the filters and that `agent_id` may see.

    `next_cursor` is after every event examined, so that none is examined twice. `has_more` is set when a visible event
    follows, or when the read stopped before the end of the log: a reader of 200,000 invisible events blocks nobody, it
    continues from there, as does one of large events after what fits its page.
    """
    found = _look(workspace_id, agent_id, stream, cursor, limit, filters)
    page = fitting(found.events, lambda event: len(str(event.payload)))
    return found if len(page) == len(found.events) else EventPage(page, page[-1].event_id, has_more=True)


def _look(
    workspace_id: str, agent_id: str, stream: str, cursor: int, limit: int, filters: Mapping[str, str]
) -> EventPage:
    # The head bounds the scan: events committed meanwhile belong to the next page.
    head = newest_event_id(workspace_id=workspace_id, stream=stream)
    if head <= cursor:
        return EventPage([], cursor, has_more=False)
    agent, moment = profile_of(agent_id), now()
    columns = {"workspace_id": workspace_id, "stream": stream, **_columns(filters)}
    # An index leads to the events of a handoff or a trace, and a page that is not filtered stops at its limit.
    end = (
        None
        if not filters or filters.keys() & {"handoff_id", "trace_id"}
        else _end_of_look(workspace_id, stream, cursor)
    )
    matching, stored = sql.events_with(tuple(sorted(columns))), _stored(columns)
    found: list[Event] = []
    examined, left, at_once = cursor, EXAMINED_AT_ONCE, min(limit + 1, EVENTS_AT_ONCE)
    while examined < head and (
        batch := matching(limit=min(at_once, left), after=examined, head=min(head, end or head), **stored)
    ):
        for event in batch:
            if event_visible(event, agent, moment):
                if len(found) == limit:
                    return EventPage(found, examined, has_more=True)
                found.append(event)
            examined = event.event_id
        if len(batch) < min(at_once, left):
            break
        left, at_once = left - len(batch), EVENTS_AT_ONCE
        if not left:
            return EventPage(found, examined, has_more=examined < head)
    if end is not None and end < head:
        return EventPage(found, max(cursor, end), has_more=True)
    return EventPage(found, head, has_more=False)


def _end_of_look(workspace_id: str, stream: str, cursor: int) -> int | None:
    """Return the last event that may be passed to the filters at once; None when all of them may."""
    here = _stored({"workspace_id": workspace_id, "stream": stream})
    last = sql.last_of_stream.first(**here, after=cursor, skipped=FILTERED_AT_ONCE - 1)
    return last[0] if last else None


def event_visible(event: Event, agent: Profile, moment: datetime) -> bool:
    """Return whether an agent sees an event, looking from the event's own workspace; an event without a workspace is
    seen from anywhere."""
    return is_shown_to(
        agent,
        visibility=event.visibility,
        target=event.target,
        actor=event.actor_agent_id,
        created_at=event.created_at,
        now=moment,
    )


def event_interest(workspace_id: str, stream: str, agent_id: str, filters: Mapping[str, str]) -> Interest:
    """Return the interest in new events for which an agent's wait on this stream with these filters must read again."""
    columns = _columns(filters)

    def admits(event: Event) -> bool:
        return all(getattr(event, name) == value for name, value in columns.items())

    return Interest(interest_keys([workspace_id], [stream], agent_id), admits)


def interest_keys(
    workspaces: Iterable[Hashable], streams: Iterable[Hashable], agent_id: str | None
) -> list[tuple[Hashable, ...]]:
    """Return the keys of the events that an agent may see in some workspaces and streams, as `keys_of` makes them.

    ANY stands for every workspace or stream. `agent_id` is None for readers that see all: an operator or the hub
    itself.
    """
    return list(product(workspaces, streams, [ANY] if agent_id is None else [EVERYBODY, agent_id]))


def interest_in(stream: str, name: str, value: str, admits: Callable[[Event], bool]) -> Interest:
    """Return the interest in a stream's events without a workspace whose payload holds `value` under `name` and that
    `admits` accepts."""
    return Interest([(stream, name, value)], admits)


def keys_of(event: Event) -> list[tuple[Hashable, ...]]:
    """Return the keys of an event: its workspace and its stream, or ANY, with each agent that may see it (the only
    ones that may, or EVERYBODY, and ANY for readers that see all). Without a workspace: its stream and each id in
    its payload, too."""
    agents = only_shown_to(visibility=event.visibility, target=event.target, actor=event.actor_agent_id)
    seen_by = (ANY, EVERYBODY) if agents is None else (ANY, *agents)
    keys: list[tuple[Hashable, ...]] = [*product((event.workspace_id, ANY), (event.stream, ANY), seen_by)]
    if event.workspace_id is None:
        named = ((name, value) for name, value in event.payload.items() if name.endswith("_id"))
        keys += [(event.stream, name, value) for name, value in named if isinstance(value, str)]
    return keys


def _columns(filters: Mapping[str, str]) -> dict[str, str]:
    """Return the columns that the filters of event_get stand for."""
    return {"actor_agent_id" if name == "agent_id" else name: value for name, value in filters.items()}


def events_after(event_id: int, limit: int) -> Sequence[Event]:
    """Return the next events of the whole log, in order."""
    return sql.events_after(event_id=event_id, limit=limit)


def events_by(agent_id: str, limit: int, *, after: int | None = None) -> list[Event]:
    """Return an agent's latest acts, newest first, among the newest events of the log (or those after an id)."""
    newest = newest_event_id()
    since = max(newest - EXAMINED, 0) if after is None else after
    return list(Event.objects.filter(event_id__gt=since, actor_agent_id=agent_id).order_by("-event_id")[:limit])


def acts_after(event_ids: Collection[int]) -> list[Event]:
    """Return, for each of these events, the next event that records what an operator did as an agent."""
    acts = Event.objects.filter(type="operator.acted")
    later = acts.filter(event_id__gt=OuterRef("event_id")).order_by("event_id").values("event_id")[:1]
    return list(acts.filter(pk__in=Event.objects.filter(pk__in=event_ids).values_list(Subquery(later))))


def recent_events(limit: int, *, workspace_id: str | None = None) -> list[Event]:
    """Return the newest events, newest first."""
    rows = Event.objects.filter(workspace_id=workspace_id) if workspace_id else Event.objects.all()
    return list(rows.select_related("workspace").order_by("-event_id")[:limit])


def first_event_at(moment: datetime) -> int | None:
    """Return the id of the first event at or after a moment; None when there is none yet.

    Times have no index. Ids rise with time, so a binary search finds it.
    """
    written_at = Event.objects.order_by("event_id").values_list("event_id", "created_at")
    oldest, newest = written_at.first(), written_at.last()
    if oldest is None or newest is None or newest[1] < moment:
        return None
    # the event is after `below`, up to `above`, or is `found`
    below, above, found = oldest[0] - 1, newest[0], newest[0]
    while below < above:
        middle = (below + above) // 2
        event_id, written = written_at.filter(event_id__gt=middle)[0]
        if written < moment:
            below = event_id
        else:
            found, above = event_id, middle
    return found


def ids_within(since: datetime, until: datetime) -> tuple[int, int]:
    """Return the ids of the events within a window, as a half-open range: the first id, and the first id after it."""
    first, beyond = first_event_at(since), first_event_at(until)
    end = newest_event_id() + 1 if beyond is None else beyond
    return end if first is None else first, end


# The newest event of some streams. The order is by a sum, so that every database uses the index on streams and does not
# read the whole log backwards.
NEWEST_OF_STREAMS = (F("event_id") + 0).desc()
