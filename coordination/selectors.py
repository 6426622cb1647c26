"""The reads of this app."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache

from django.conf import settings
from django.db.models import Max, QuerySet

from coordination.clock import now
from coordination.lookups import Select, Slot
from coordination.models import Agent, Event, Session, SessionStatus
from coordination.routing import Profile, can_see, capability_set

EVENTS_AT_ONCE = 500

_profile = Select(lambda: Agent.objects.filter(pk=Slot("agent_id")).values_list("role", "capabilities"))
_profiles = Select(
    lambda: Agent.objects.order_by("created_at", "agent_id").values_list("agent_id", "role", "capabilities")
)


def profile_of(agent_id: str) -> Profile:
    """What routing knows of an agent, registered or not."""
    row = _profile.first(agent_id=agent_id)
    return Profile(agent_id, row[0], capability_set(row[1])) if row else Profile(agent_id)


def profiles() -> list[Profile]:
    """Every registered agent, for resolving a group target."""
    return [Profile(agent_id, role, capability_set(capabilities)) for agent_id, role, capabilities in _profiles()]


def agents_without_key() -> list[str]:
    """The agents that no API key was ever issued to, oldest first."""
    keyless = Agent.objects.filter(key=None).order_by("created_at", "agent_id")
    return list(keyless.values_list("agent_id", flat=True))


def capabilities() -> dict[str, list[str]]:
    """Every advertised capability with the agents that have it, both sorted."""
    holders: dict[str, list[str]] = defaultdict(list)
    for profile in sorted(profiles(), key=lambda profile: profile.agent_id):
        for capability in profile.capabilities:
            holders[capability].append(profile.agent_id)
    return dict(sorted(holders.items()))


def participants(workspace_id: str, moment: datetime) -> tuple[list[str], list[str]]:
    """The agents with an active session in a workspace, sorted: those present, and those whose every heartbeat is old.

    Presence is one predicate: an active session with a heartbeat within presence_ttl_seconds.
    """
    horizon = moment - timedelta(seconds=settings.NEXUS.presence_ttl_seconds)
    heartbeats = (
        Session.objects.filter(workspace_id=workspace_id, status=SessionStatus.ACTIVE)
        .values_list("agent_id")
        .annotate(latest=Max("last_heartbeat_at"))
        .order_by("agent_id")
    )
    present: list[str] = []
    stale: list[str] = []
    for agent_id, latest in heartbeats:
        (present if latest >= horizon else stale).append(agent_id)
    return present, stale


def newest_event_id(**where: str) -> int:
    """The id of the newest event, of the whole log or of those with these columns; 0 when there is none."""
    newest = _newest(tuple(sorted(where))).first(**where)
    return newest[0] if newest else 0


@cache
def _newest(columns: tuple[str, ...]) -> Select[tuple[int]]:
    return Select(lambda: _events_with(columns).order_by("-event_id").values_list("event_id"))


@cache
def _next_events(columns: tuple[str, ...]) -> Select[Event]:
    """The events after one id, up to another, that have these columns."""
    return Select(
        lambda: (
            _events_with(columns).filter(event_id__gt=Slot("after"), event_id__lte=Slot("head")).order_by("event_id")
        )
    )


def _events_with(columns: tuple[str, ...]) -> QuerySet[Event]:
    return Event.objects.filter(**{name: Slot(name) for name in columns})


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

    next_cursor passes every event examined, so that none is examined twice; has_more tells of a visible one beyond.
    """
    agent, moment = profile_of(agent_id), now()
    # The head bounds the scan: what is committed meanwhile is the next page's.
    head = newest_event_id(workspace_id=workspace_id, stream=stream)
    columns = {"workspace_id": workspace_id, "stream": stream, **_columns(filters)}
    matching, at_once = _next_events(tuple(sorted(columns))), min(limit + 1, EVENTS_AT_ONCE)
    found: list[Event] = []
    examined = cursor
    while batch := matching(at_once, after=examined, head=head, **columns):
        for event in batch:
            if event_visible(event, workspace_id, agent, moment):
                if len(found) == limit:
                    return EventPage(found, examined, has_more=True)
                found.append(event)
            examined = event.event_id
        if len(batch) < at_once:
            break
    return EventPage(found, max(cursor, head), has_more=False)


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
