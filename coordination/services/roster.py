"""Agents as operators manage them: create, change, delete, and agents that leave."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from coordination import selectors
from coordination.models import Agent, AgentKey, Session, SessionStatus
from coordination.selectors import agent_exists, no_agent
from coordination.services import agents, audit, keys, sessions
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import invalid


def create(*, agent_id: str, given: dict[str, Any], operator: str) -> tuple[Agent, str]:
    """Create an agent, or restore a deleted one; return it with its key, which is shown only here. `given` as for
    `agents.register`.

    Raises VALIDATION_ERROR when the id is taken, and what `agents.register` raises.
    """
    moment = now()
    with write():
        if agent_exists(agent_id):
            raise invalid(
                f"There is an agent {agent_id!r} already: agent_update changes it, agent_key_issue gives it a key.",
                field="agent_id",
            )
        agent = agents.register(agent_id=agent_id, given=given, by_operator=True)
        Agent.objects.filter(pk=agent_id).update(last_seen_at=None)  # the agent itself has not acted
        agent.last_seen_at = None
        key, _ = keys.replace(agent_id, moment)
        audit.record(operator, "agent.created", moment, agent_id=agent_id)
    return agent, key


def update(*, agent_id: str, given: dict[str, Any], operator: str) -> Agent:
    """Change the parts of the profile that `given` names. Raises NOT_FOUND and as `agents.register` does."""
    given, moment = agents.checked_profile(given), now()
    with write():
        agents.check_tags(given)
        agent = selectors.get_agent(agent_id)
        for name, value in given.items():
            setattr(agent, name, value)
        agent.updated_at = moment
        agent.save(update_fields=[*given, "updated_at"])
        audit.record(operator, "agent.updated", moment, agent_id=agent_id, changed=sorted(given))
    return agent


LASTING = re.compile(r"([1-9][0-9]{0,4})([mhd])|0")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}
LONGEST_MUTE = timedelta(days=30)


def mute(*, agent_id: str, lasting: str, operator: str) -> Agent:
    """Let nothing wake an agent for as long as `lasting` says, such as 1h; `0` ends that. Raises VALIDATION_ERROR and
    NOT_FOUND."""
    moment = now()
    found = LASTING.fullmatch(lasting)
    span = timedelta(**{UNITS[found[2]]: int(found[1])}) if found and found[1] else timedelta()
    if found is None or span > LONGEST_MUTE:
        raise invalid("lasting must be a time such as 30m, 1h or 2d, 30d at most; 0 ends the mute.", field="lasting")
    with write(agent_id):
        agent = selectors.get_agent(agent_id)
        agent.muted_until = moment + span if span else None
        agent.save(update_fields=["muted_until"])
        audit.record(operator, "agent.updated", moment, agent_id=agent_id, changed=["muted_until"])
    return agent


def delete(*, agent_id: str, operator: str) -> int:
    """Take an agent out of the team; return how many of its sessions were closed.

    Its key stops working, nothing is delivered to it and no list shows it. Its row stays, hidden, because messages,
    deliveries and sessions of the past refer to it; an operator who creates the id again restores it with its
    unread mail. Raises NOT_FOUND for an unknown agent.
    """
    moment = now()
    with write():
        if not Agent.objects.filter(pk=agent_id).update(deleted_at=moment, updated_at=moment):
            raise no_agent(agent_id)
        AgentKey.objects.filter(agent_id=agent_id).delete()
        keys.revoke_all_lent(agent_id=agent_id)
        closed = _end_sessions(agent_id, "agent deleted", moment, operator)
        audit.record(operator, "agent.deleted", moment, agent_id=agent_id)
    return closed


def leave(*, agent_id: str, moment: datetime) -> None:
    """Mark an agent as gone: it is present nowhere, and its mail waits for the next agent with this id. Call it inside
    a transaction."""
    _end_sessions(agent_id, "agent ended", moment)
    Agent.objects.filter(pk=agent_id).update(last_seen_at=None)


def _end_sessions(agent_id: str, reason: str, moment: datetime, operator: str | None = None) -> int:
    active = list(Session.objects.filter(agent_id=agent_id, status=SessionStatus.ACTIVE))
    for session in active:
        sessions.end(session, reason, moment, operator)
    return len(active)
