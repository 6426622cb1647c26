"""The reads behind the operators' pages: presence, activity, what is there. Each is a fixed number of queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from django.db.models import Count, Max

from coordination.config import CoordinationSettings
from coordination.models import Agent, Session, SessionStatus


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
    if silence <= CoordinationSettings.current().session_stale_ttl_seconds:
        return Presence.PRESENT
    return Presence.STALE if silence <= CoordinationSettings.current().presence_ttl_seconds else Presence.OFFLINE


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


def state_of(agent: Agent, moment: datetime) -> AgentState:
    """One agent with its presence."""
    active = Session.objects.filter(agent=agent, status=SessionStatus.ACTIVE)
    row = active.aggregate(heartbeat=Max("last_heartbeat_at"), sessions=Count("pk"))
    return AgentState(agent, presence_of(row["heartbeat"], moment), row["heartbeat"], row["sessions"])
