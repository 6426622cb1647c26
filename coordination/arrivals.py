"""The answer to an agent that joins: who is present, and what each app reports about the project."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from typing_extensions import TypedDict

from coordination.config import CoordinationSettings
from coordination.models import Agent, Session, SessionStatus

MOST = 20  # agents, or rows of one app

Part = Callable[[str, str, datetime], Any]  # (agent_id, workspace_id, moment)

_parts: dict[str, Part] = {}


def register(name: str, part: Part) -> None:
    """Register the function that reads one part of the answer. It must use indexes and return a few rows."""
    _parts[name] = part


class Present(TypedDict):
    """Another agent that is present."""

    agent_id: str
    role: str | None


def present(agent_id: str, workspace_id: str, moment: datetime) -> list[Present]:
    """Return the other agents in a workspace that broadcasts reach, up to MOST."""
    since = moment - timedelta(seconds=CoordinationSettings.current().presence_ttl_seconds)
    sessions = Session.objects.filter(
        workspace_id=workspace_id, status=SessionStatus.ACTIVE, last_heartbeat_at__gte=since
    )
    agents = Agent.objects.filter(pk__in=sessions.values("agent_id")).exclude(pk=agent_id).order_by("pk")[:MOST]
    return [{"agent_id": each.agent_id, "role": each.role} for each in agents]


def waiting(agent_id: str, workspace_id: str, moment: datetime) -> dict[str, Any]:
    """Return each app's part of the answer, by name."""
    return {name: part(agent_id, workspace_id, moment) for name, part in _parts.items()}
