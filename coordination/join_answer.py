"""The answer to an agent that joins: who is present, and what each app reports about the project."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from typing_extensions import TypedDict

from coordination import selectors
from coordination.models import Agent
from nexus.core.operations.caller import Caller

MOST = 20  # agents, or rows of one app

Part = Callable[[str, str, datetime], Any]  # (agent_id, workspace_id, moment)

_parts: dict[str, Part] = {}
_returns: dict[str, Callable[[Caller], Any]] = {}


def register(name: str, part: Part) -> None:
    """Register the function that reads one part of the answer. It must use indexes and return a few rows."""
    _parts[name] = part


def register_return(name: str, gives_back: Callable[[Caller], Any]) -> None:
    """Register the function that gives a joining connection back what its agent had, and names it; empty if nothing."""
    _returns[name] = gives_back


class Present(TypedDict):
    """Another agent that is present."""

    agent_id: str
    role: str | None


def present(agent_id: str, workspace_id: str, moment: datetime) -> list[Present]:
    """Return the other agents in a workspace that broadcasts reach, up to MOST."""
    sessions = selectors.present_sessions(moment).filter(workspace_id=workspace_id)
    agents = Agent.objects.filter(pk__in=sessions.values("agent_id")).exclude(pk=agent_id).order_by("pk")[:MOST]
    return [{"agent_id": each.agent_id, "role": each.role} for each in agents]


def answers_to_join(agent_id: str, workspace_id: str, moment: datetime, caller: Caller) -> dict[str, Any]:
    """Return each app's part of the answer, by name."""
    parts = {name: part(agent_id, workspace_id, moment) for name, part in _parts.items()}
    returned = {name: gives_back(caller) for name, gives_back in _returns.items()}
    return {**parts, **{name: part for name, part in returned.items() if part}}
