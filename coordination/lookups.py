"""Look-ups that nearly every call makes."""

from __future__ import annotations

from coordination.models import Agent, AgentKey, LentKey, Workspace
from coordination.near_misses import no_agent
from nexus.core.database.prepared import Lookup

agent_exists = Lookup(Agent.objects.all)  # the manager leaves deleted ones out
workspace_exists = Lookup(Workspace.objects.all)
toolsets_of = Lookup(Agent.objects.all, column="toolsets")
_of_issued = Lookup(lambda: AgentKey.objects.filter(is_active=True), by="key_hash", column="agent_id")
_of_lent = Lookup(LentKey.objects.all, by="key_hash", column="agent_id")


def require_agent(agent_id: str) -> None:
    """Check that an agent is registered and not deleted. Raises NOT_FOUND."""
    if not agent_exists(agent_id):
        raise no_agent(agent_id)


def agent_hint(agent_id: str) -> str | None:
    """Return the hint for an empty answer: that there is no such agent, and which one was probably meant."""
    return None if agent_exists(agent_id) else no_agent(agent_id).message


def agent_of_key_hash(key_hash: str) -> str | None:
    """Return the agent of a key that an operator issued, or that was lent to the agent's process."""
    found: str | None = _of_issued(key_hash) or _of_lent(key_hash)
    return found
