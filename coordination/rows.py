"""The rows of this app as every transport shows them."""

from __future__ import annotations

from typing import Any

from coordination.models import Agent, Artifact, Channel, Event, Session, Workspace
from core.clock import iso
from core.operations.replies import Data


def workspace_data(workspace: Workspace) -> Data:
    return {
        "workspace_id": workspace.workspace_id,
        "display_name": workspace.display_name,
        "root_realpath": workspace.root_realpath,
        "created_at": iso(workspace.created_at),
        "last_seen_at": iso(workspace.last_seen_at),
    }


def agent_data(agent: Agent) -> dict[str, Any]:
    return {
        "agent_id": agent.agent_id,
        "role": agent.role,
        "capabilities": agent.capabilities,
        "metadata": agent.metadata,
        "created_at": iso(agent.created_at),
        "last_seen_at": iso(agent.last_seen_at),
    }


def session_data(session: Session) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "agent_id": session.agent_id,
        "workspace_id": session.workspace_id,
        "status": session.status,
        "started_at": iso(session.started_at),
        "last_heartbeat_at": iso(session.last_heartbeat_at),
    }


def event_data(event: Event) -> dict[str, Any]:
    return {
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


def channel_data(channel: Channel) -> Data:
    return {
        "channel_id": channel.channel_id,
        "workspace_id": channel.workspace_id,
        "name": channel.name,
        "created_at": iso(channel.created_at),
    }


def artifact_data(artifact: Artifact) -> dict[str, Any]:
    return {
        "artifact_id": artifact.artifact_id,
        "workspace_id": artifact.workspace_id,
        "artifact_type": artifact.artifact_type,
        "stored": artifact.stored,
        "size_bytes": artifact.size_bytes,
        "created_at": iso(artifact.created_at),
    }
