"""What an operator can do with the bus's own rows, on their lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordination.models import LimitScope
from coordination.services import agent_limits
from nexus.core.contributions import Action


def _nothing(subject: str) -> dict[str, Any]:
    """Return what takes back all limits of "agent NAME" or "role NAME"."""
    scope, _, name = subject.partition(" ")
    whose = {"agent_id" if scope == LimitScope.AGENT else "role": name}
    return {**whose, "limits": dict.fromkeys(agent_limits.names()), "allowed": None, "refused": None}


def _called(subjects: Sequence[str]) -> dict[str, str]:
    return {subject: f"limits of {subject}" for subject in subjects}


ACTIONS = (Action("limits_update", "Take back", "taken back", ("limit", "limits"), _nothing, _called, danger=True),)
