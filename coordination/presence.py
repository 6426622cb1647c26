"""Presence for people: on pages, in commands and in metrics. Each read is a fixed number of queries.

Here every act of an agent counts, and every connection of it that is open. Whom a broadcast reaches depends on
heartbeats alone (`selectors.participants`); `reached_by_broadcasts` shows where the two differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.db.models import Count, Max, QuerySet

from coordination.activity import AgentActivity, activities
from coordination.config import CoordinationSettings
from coordination.models import Agent, Session, SessionStatus


class Presence(StrEnum):
    """How recently an agent acted."""

    PRESENT = "present"  # within session_stale_ttl_seconds
    STALE = "stale"  # silent for longer, still within presence_ttl_seconds
    OFFLINE = "offline"  # a longer silence, or it closed its last session and did nothing since

    @property
    def label(self) -> str:
        """The word for people."""
        return "quiet" if self is Presence.STALE else str(self)


@dataclass(frozen=True)
class AgentState:
    """An agent as a page lists it."""

    agent: Agent
    presence: Presence
    heartbeat: datetime | None  # the latest of its active sessions
    sessions: int  # active sessions
    last_act: datetime | None  # its latest call; an open connection is none
    reached_by_broadcasts: bool  # an active session has a heartbeat within presence_ttl_seconds
    activity: AgentActivity | None  # what it does, where its client tells it

    @property
    def agent_id(self) -> str:
        return self.agent.agent_id

    @property
    def beyond_broadcasts(self) -> bool:
        """Whether the agent is present by its acts, but broadcasts do not reach it because its heartbeats are old."""
        return self.presence is not Presence.OFFLINE and not self.reached_by_broadcasts


def agent_states(moment: datetime, *, workspace_id: str | None = None) -> list[AgentState]:
    """Return every agent with its presence, by id; with a workspace, its presence there: without a session it is
    offline."""
    agents = list(Agent.objects.order_by("agent_id"))
    return _states(agents, _sessions(workspace_id), moment, elsewhere=not workspace_id)


def states_of(agents: Sequence[Agent], moment: datetime, *, workspace_id: str | None = None) -> list[AgentState]:
    """Return the presence of some agents, like `agent_states` of all; use it for one page of agents at most."""
    sessions = _sessions(workspace_id).filter(agent__in=agents)
    return _states(agents, sessions, moment, elsewhere=not workspace_id)


def agents_in(workspace_id: str) -> QuerySet[Session, str]:
    """Return the ids of the agents that have, or had, a session in a workspace."""
    return Session.objects.filter(workspace_id=workspace_id).order_by().values_list("agent_id", flat=True).distinct()


def state_of(agent: Agent, moment: datetime) -> AgentState:
    """Return one agent with its presence."""
    return states_of([agent], moment)[0]


def _sessions(workspace_id: str | None) -> QuerySet[Session]:
    return Session.objects.filter(workspace_id=workspace_id) if workspace_id else Session.objects.all()


def _states(
    agents: Sequence[Agent], sessions: QuerySet[Session], moment: datetime, elsewhere: bool = True
) -> list[AgentState]:
    """Return the agents' presence. With `elsewhere`, an act counts also without an active session among `sessions`."""
    active = sessions.filter(status=SessionStatus.ACTIVE).values_list("agent_id")
    heard = {
        agent_id: (heartbeat, count)
        for agent_id, heartbeat, count in active.annotate(Max("last_heartbeat_at"), Count("pk")).order_by()
    }
    config = CoordinationSettings.current()
    window = timedelta(seconds=config.presence_ttl_seconds)
    ended = sessions.filter(status=SessionStatus.CLOSED, closed_at__gte=moment - window).values_list("agent_id")
    left = dict(ended.annotate(Max("closed_at")).order_by())
    doing = activities([agent.agent_id for agent in agents], moment)
    states = []
    for agent in agents:
        heartbeat, count = heard.get(agent.agent_id, (None, 0))
        last_act = agent.last_seen_at
        gone = not count and (
            not elsewhere or (agent.agent_id in left and last_act is not None and last_act <= left[agent.agent_id])
        )
        last_sign = max(filter(None, (last_act, heartbeat, agent.connected_at)), default=None)
        presence = Presence.OFFLINE if gone else _presence(last_sign, moment, config)
        reached = heartbeat is not None and moment - heartbeat <= window
        states.append(AgentState(agent, presence, heartbeat, count, last_act, reached, doing.get(agent.agent_id)))
    return states


def _presence(last_sign: datetime | None, moment: datetime, config: CoordinationSettings) -> Presence:
    if last_sign is None:
        return Presence.OFFLINE
    silence = (moment - last_sign).total_seconds()
    if silence <= config.session_stale_ttl_seconds:
        return Presence.PRESENT
    return Presence.STALE if silence <= config.presence_ttl_seconds else Presence.OFFLINE
