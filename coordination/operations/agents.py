"""Operations on agents: identities, roles and capabilities."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from coordination import selectors
from coordination.models import Agent
from coordination.rows import AgentProfile, AgentRow, agent_profile, agent_row
from coordination.services import agents
from coordination.toolset import operation
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, invalid
from nexus.core.operations.pages import Paged, PageEnd, page
from nexus.core.operations.parameters import Id, Label, Nothing, Params, Shown


class AgentRegister(Params):
    agent_id: Annotated[Id, Field(description="Stable, and yours alone: builder-1. Matched exactly.")]
    role: Annotated[Label | None, Field(description="What a role target can address: reviewer.")] = None
    capabilities: Annotated[
        Any,
        Shown({"type": "array", "items": {"type": "string"}}),
        Field(description="What a capability target can address: a list of names, or {name: true}."),
    ] = None
    metadata: Annotated[Any, Field(description="Any JSON, shown to others.")] = None


@operation(
    AgentRegister,
    Code.VALIDATION_ERROR,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_OWNER,
    acts_as="agent_id",
    idempotent=True,
)
def agent_register(p: AgentRegister, caller: Caller) -> AgentProfile:
    """Create or update your identity; agents are global, across workspaces. What you leave out keeps its value."""
    given = {name: getattr(p, name) for name in p.model_fields_set - {"agent_id"}}
    by_operator = caller.operator is not None
    return agent_profile(agents.register(agent_id=p.agent_id, given=given, by_operator=by_operator))


class AgentList(PageEnd):
    agents: list[AgentRow]


@operation(Paged, Code.VALIDATION_ERROR, read_only=True)
def agent_list(p: Paged, caller: Caller) -> AgentList:
    """List all agents with role, capabilities and last action: find whom to address."""
    agents, end = page(Agent.objects.all(), p, by="created_at")
    return {"agents": [agent_row(agent) for agent in agents], **end}


class AgentGet(Params):
    agent_id: Id


@operation(AgentGet, Code.VALIDATION_ERROR, Code.NOT_FOUND, read_only=True)
def agent_get(p: AgentGet, caller: Caller) -> AgentRow:
    """One agent's profile and last action."""
    return agent_row(selectors.get_agent(p.agent_id))


@operation(Nothing, Code.VALIDATION_ERROR, Code.NOT_FOUND, read_only=True)
def agent_whoami(p: Nothing, caller: Caller) -> AgentRow:
    """Your profile, where a key binds this connection to an agent; else an error."""
    if caller.agent_id is None:
        raise invalid("This connection is bound to no agent. Start it with an API key, or pass agent_id yourself.")
    return agent_get(AgentGet(agent_id=caller.agent_id), caller)


class CapabilityRow(TypedDict):
    capability: str
    agent_count: int
    agents: list[str]


class CapabilityList(TypedDict):
    capabilities: list[CapabilityRow]


@operation(Nothing, read_only=True)
def capability_list(p: Nothing, caller: Caller) -> CapabilityList:
    """All advertised capabilities and who has them: what a capability target can address."""
    return {
        "capabilities": [
            {"capability": name, "agent_count": len(holders), "agents": holders}
            for name, holders in selectors.capabilities().items()
        ]
    }
