"""The rows of this app as every transport returns them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, TypeVar, cast

from django.db.models import Model
from pydantic import Field
from typing_extensions import TypedDict

from coordination.activity import AgentActivity, activities
from coordination.models import Agent, Artifact, Channel, Event, Session, Workspace
from nexus.core.clock import iso, now
from nexus.core.harness_events import Activity
from nexus.core.operations.parameters import Time, one_of

Duplicate = Annotated[Literal[True], Field(description="An earlier call with this client_id made it.")]
R = TypeVar("R")
SessionState = Annotated[str, one_of(("active", "stale", "closed"))]


def _row_of(shape: type[R], row: Model) -> R:
    """Return the columns of a row that a shape names; times as text."""
    values = ((name, getattr(row, name)) for name in shape.__annotations__)
    return cast(R, {name: iso(value) if isinstance(value, datetime) else value for name, value in values})


class WorkspaceRow(TypedDict):
    workspace_id: str
    display_name: str | None
    root_realpath: str
    created_at: Time
    last_seen_at: Time


def workspace_row(workspace: Workspace) -> WorkspaceRow:
    return _row_of(WorkspaceRow, workspace)


class ActivityRow(TypedDict):
    state: Annotated[str, one_of(Activity)]
    since: Time
    until: NotRequired[Time]
    evidence: str


class AgentRow(TypedDict):
    agent_id: str
    role: str | None
    capabilities: Any
    metadata: Any
    tags: NotRequired[dict[str, list[str]]]
    created_at: Time
    last_seen_at: Time | None


class ListedAgent(AgentRow):
    activity: NotRequired[Annotated[ActivityRow, Field(description="idle: mail wakes it; asleep: only its person.")]]


class AgentProfile(AgentRow):
    updated_at: Time


def activity_row(activity: AgentActivity) -> ActivityRow:
    row: ActivityRow = {"state": activity.state, "since": iso(activity.since), "evidence": activity.evidence}
    return row if activity.until is None else {**row, "until": iso(activity.until)}


def listed_agents(agents: Sequence[Agent]) -> list[ListedAgent]:
    """Return agents with what they do, where their clients tell it."""
    doing = activities([agent.agent_id for agent in agents], now())
    rows = [cast(ListedAgent, agent_row(agent)) for agent in agents]
    for row in rows:
        if found := doing.get(row["agent_id"]):
            row["activity"] = activity_row(found)
    return rows


def agent_row(agent: Agent) -> AgentRow:
    row: AgentRow = {
        "agent_id": agent.agent_id,
        "role": agent.role,
        "capabilities": agent.capabilities,
        "metadata": agent.metadata,
        "created_at": iso(agent.created_at),
        "last_seen_at": iso(agent.last_seen_at),
    }
    if agent.tags:
        row["tags"] = agent.tags
    return row


def agent_profile(agent: Agent) -> AgentProfile:
    return {**agent_row(agent), "updated_at": iso(agent.updated_at)}


class SessionRow(TypedDict):
    session_id: str
    agent_id: str
    workspace_id: str
    status: SessionState
    started_at: Time
    last_heartbeat_at: Time


def session_row(session: Session) -> SessionRow:
    return _row_of(SessionRow, session)


class EventRow(TypedDict):
    event_id: int
    workspace_id: str | None
    stream: str
    type: str
    payload: dict[str, Any]
    actor_agent_id: str | None
    task_id: str | None
    handoff_id: str | None
    trace_id: NotRequired[str]
    created_at: Time


def event_row(event: Event) -> EventRow:
    row: EventRow = {
        "event_id": event.event_id,
        "workspace_id": event.workspace_id,
        "stream": event.stream,
        "type": event.type,
        "payload": event.payload,
        "actor_agent_id": event.actor_agent_id,
        "task_id": event.task_id,
        "handoff_id": event.handoff_id,
        "created_at": iso(event.created_at),
    }
    if event.trace_id is not None:
        row["trace_id"] = event.trace_id
    return row


class ChannelRow(TypedDict):
    channel_id: str
    workspace_id: str
    name: str
    created_at: Time


def channel_row(channel: Channel) -> ChannelRow:
    return _row_of(ChannelRow, channel)


class ArtifactRow(TypedDict):
    artifact_id: str
    workspace_id: str
    artifact_type: str
    stored: Annotated[str, one_of(("inline", "path"))]
    size_bytes: Annotated[int, Field(description="For a path: 0 if it is not a file, or was put with a key.")]
    created_at: Time


def artifact_row(artifact: Artifact) -> ArtifactRow:
    return _row_of(ArtifactRow, artifact)
