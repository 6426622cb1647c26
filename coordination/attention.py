"""What an operator can do with the bus's own rows, on their lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from coordination.forms import LimitsForm, ProfileForm, limits_of, profile_of
from coordination.models import Agent, LimitScope, Session
from coordination.services import agent_limits
from nexus.core.contributions import Action


def _nothing(subject: str) -> dict[str, Any]:
    """Return what takes back all limits of "agent NAME" or "role NAME"."""
    scope, _, name = subject.partition(" ")
    whose = {"agent_id" if scope == LimitScope.AGENT else "role": name}
    return {**whose, "limits": dict.fromkeys(agent_limits.names()), "allowed": None, "refused": None}


def _called(subjects: Sequence[str]) -> dict[str, str]:
    return {subject: f"limits of {subject}" for subject in subjects}


def the_agent(agent_id: str) -> dict[str, str]:
    """Return the parameter of operations on one agent."""
    return {"agent_id": agent_id}


def _set_active(active: bool) -> Callable[[str], dict[str, Any]]:
    return lambda agent_id: {"agent_id": agent_id, "active": active}


def agent_names(agent_ids: Sequence[str]) -> dict[str, str]:
    """Return the names of the agents that still exist, by id."""
    return {name: name for name in Agent.objects.filter(pk__in=agent_ids).values_list("pk", flat=True)}


def _profile(agent_id: str, data: Any) -> ProfileForm:
    row = Agent.objects.filter(pk=agent_id).first()
    return ProfileForm(data, initial=profile_of(row) if row else {})


def _limits(agent_id: str, data: Any) -> LimitsForm:
    role = Agent.objects.filter(pk=agent_id).values_list("role", flat=True).first()
    return LimitsForm(data, initial=limits_of(LimitScope.AGENT, agent_id), role=role)


def _sessions(session_ids: Sequence[str]) -> dict[str, str]:
    rows = Session.objects.filter(pk__in=session_ids).values_list("pk", "agent_id")
    return {pk: f"{pk} of {agent_id}" for pk, agent_id in rows}


AGENTS = ("agent", "agents")
ACTIONS = (
    Action("limits_update", "Take back", "taken back", ("limit", "limits"), _nothing, _called, danger=True),
    Action(
        "limits_update", "Limits…", "given these limits", AGENTS, the_agent, agent_names, variant="agent", form=_limits
    ),
    Action("agent_update", "Profile…", "given this profile", AGENTS, the_agent, agent_names, form=_profile),
    Action("agent_delete", "Delete…", "deleted", AGENTS, the_agent, agent_names, danger=True),
    *(
        Action(
            "agent_key_set_active",
            f"{word} its key",
            f"let use its key {done}",
            AGENTS,
            _set_active(active),
            agent_names,
            undo=f"agent_key_set_active:{other}",
            variant=variant,
        )
        for variant, other, word, done, active in (
            ("on", "off", "Activate", "again", True),
            ("off", "on", "Deactivate", "no more", False),
        )
    ),
    Action(
        "session_close",
        "Close",
        "closed",
        ("session", "sessions"),
        lambda session_id: {"session_id": session_id},
        _sessions,
    ),
)
