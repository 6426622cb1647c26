"""What an agent that joins is told: who is here, and what the apps above know of the project."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from typing_extensions import TypedDict

from coordination.config import CoordinationSettings
from coordination.models import Agent, Session, SessionStatus

MOST = 20  # agents, or rows of one app

Part = Callable[[str, str, datetime], Any]  # of an agent, in a workspace, at a moment

_parts: dict[str, Part] = {}


def register(name: str, part: Part) -> None:
    """Name what reads a part of the answer; it looks along indexes and answers a few rows."""
    _parts[name] = part


class Present(TypedDict):
    """Another agent that is here."""

    agent_id: str
    role: str | None


def present(agent_id: str, workspace_id: str, moment: datetime) -> list[Present]:
    """The other agents that broadcasts reach in a workspace, up to MOST."""
    since = moment - timedelta(seconds=CoordinationSettings.current().presence_ttl_seconds)
    sessions = Session.objects.filter(
        workspace_id=workspace_id, status=SessionStatus.ACTIVE, last_heartbeat_at__gte=since
    )
    agents = Agent.objects.filter(pk__in=sessions.values("agent_id")).exclude(pk=agent_id).order_by("pk")[:MOST]
    return [{"agent_id": each.agent_id, "role": each.role} for each in agents]


def waiting(agent_id: str, workspace_id: str, moment: datetime) -> dict[str, Any]:
    """What each app says, by its name."""
    return {name: part(agent_id, workspace_id, moment) for name, part in _parts.items()}
