"""The reads behind the operators' pages: presence, activity, what is there. Each is a fixed number of queries."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from django.conf import settings
from django.db.models import Count, Max

from coordination.models import Agent, Event, Session, SessionStatus

EXAMINED = 50_000  # events looked through for those of one agent
DISK_LOW = 0.95  # used share of the disk from which on an operator should know


class Presence(StrEnum):
    """How lately an agent's session was heard of (contract: Presence & staleness windows)."""

    PRESENT = "present"  # within session_stale_ttl_seconds
    STALE = "stale"  # silent for longer, still within presence_ttl_seconds
    OFFLINE = "offline"  # no active session, or a longer silence


@dataclass(frozen=True)
class AgentState:
    """An agent as a page lists it."""

    agent: Agent
    presence: Presence
    heartbeat: datetime | None  # of its freshest active session
    sessions: int  # active ones

    @property
    def agent_id(self) -> str:
        return self.agent.agent_id


def presence_of(heartbeat: datetime | None, moment: datetime) -> Presence:
    """The presence that a freshest heartbeat stands for."""
    if heartbeat is None:
        return Presence.OFFLINE
    silence = (moment - heartbeat).total_seconds()
    if silence <= settings.NEXUS.session_stale_ttl_seconds:
        return Presence.PRESENT
    return Presence.STALE if silence <= settings.NEXUS.presence_ttl_seconds else Presence.OFFLINE


def agent_states(moment: datetime, *, workspace_id: str | None = None) -> list[AgentState]:
    """Every agent with its presence, by id; with a workspace, its presence there."""
    active = Session.objects.filter(status=SessionStatus.ACTIVE)
    if workspace_id:
        active = active.filter(workspace_id=workspace_id)
    rows = active.values_list("agent_id").annotate(Max("last_heartbeat_at"), Count("pk")).order_by()
    heard = {agent_id: (heartbeat, count) for agent_id, heartbeat, count in rows}
    states = []
    for agent in Agent.objects.order_by("agent_id"):
        heartbeat, count = heard.get(agent.agent_id, (None, 0))
        states.append(AgentState(agent, presence_of(heartbeat, moment), heartbeat, count))
    return states


def id_floor(prefix: str, moment: datetime) -> str:
    """The lowest id that `new_id` makes at a moment: ids carry their time, so an id range is a time range."""
    return f"{prefix}_{int(moment.timestamp() * 1000):012x}"


def time_of_id(identifier: str) -> datetime:
    """When an id of `new_id` was made, to the millisecond."""
    return datetime.fromtimestamp(int(identifier.partition("_")[2][:12], 16) / 1000, UTC)


def state_of(agent: Agent, moment: datetime) -> AgentState:
    """One agent with its presence."""
    active = Session.objects.filter(agent=agent, status=SessionStatus.ACTIVE)
    row = active.aggregate(heartbeat=Max("last_heartbeat_at"), sessions=Count("pk"))
    return AgentState(agent, presence_of(row["heartbeat"], moment), row["heartbeat"], row["sessions"])


def events_by(agent_id: str, limit: int, *, after: int | None = None) -> list[Event]:
    """What an agent did last, newest first, among the newest events of the log (or those after an id)."""
    newest = Event.objects.order_by("-event_id").values_list("event_id", flat=True).first() or 0
    since = max(newest - EXAMINED, 0) if after is None else after
    return list(Event.objects.filter(event_id__gt=since, actor_agent_id=agent_id).order_by("-event_id")[:limit])


def recent_events(limit: int, *, workspace_id: str | None = None) -> list[Event]:
    """The newest events, newest first."""
    rows = Event.objects.filter(workspace_id=workspace_id) if workspace_id else Event.objects.all()
    return list(rows.select_related("workspace").order_by("-event_id")[:limit])


def disk_used() -> float:
    """The used share of the disk the store is on, 0 to 1."""
    usage = shutil.disk_usage(settings.NEXUS.database.parent)
    return 1 - usage.free / usage.total
