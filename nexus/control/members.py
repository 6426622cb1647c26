"""Authority in the pool: who calls, and whether the caller may act on an agent (identity first, then lineage)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nexus.control import rules
from nexus.control.errors import ControlCode
from nexus.control.models import PoolAgent
from nexus.core.database.prepared import Select, Slot
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller
from nexus.core.operations.errors import NexusError, not_found

_living = Select(lambda: PoolAgent.objects.living().filter(agent_id=Slot("agent_id")))


@dataclass(frozen=True)
class Actor:
    """The caller: an agent of the pool, or an administrator, who may do everything."""

    name: str
    agent: PoolAgent | None = None

    @property
    def is_administrator(self) -> bool:
        return self.agent is None


def actor_of(caller: Caller) -> Actor:
    """Return the actor that a caller is in the pool.

    An operator is an administrator, and so is a local process that is bound to no agent: it can read the token's file.
    Raises NOT_PERMITTED for an agent that is not of the pool.
    """
    if caller.operator is not None:
        return Actor(caller.operator)
    if caller.agent_id is None:
        return Actor(LOCAL_OPERATOR)
    agent = find(caller.agent_id)
    if agent is None:
        raise refused(
            "member",
            f"{caller.agent_id!r} is not an agent of the pool. Ask an operator to create agents or to message them.",
        )
    return Actor(agent.agent_id, agent)


def find(agent_id: str) -> PoolAgent | None:
    """Return the living agent of this name, or None."""
    return _living.first(agent_id=agent_id)


def names() -> set[str]:
    """Return the names of the living agents."""
    return set(PoolAgent.objects.living().values_list("agent_id", flat=True))


def get(agent_id: str) -> PoolAgent:
    """Return the living agent of this name. Raises NOT_FOUND."""
    agent = find(agent_id)
    if agent is None:
        raise not_found("pool agent", agent_id[:200])
    return agent


def check_authority(actor: Actor, agent: PoolAgent, verb: str) -> None:
    """Check that the actor is an administrator, the agent itself or one of its ancestors. Raises NOT_PERMITTED."""
    if actor.agent is None or actor.agent.pk == agent.pk or actor.agent.pk in _ancestors(agent):
        return
    raise refused(
        "lineage", f"{actor.name!r} may {verb} itself and what it created, and {agent.agent_id!r} is neither."
    )


def check_tool(actor: Actor, tool: str) -> None:
    """Check that an agent has this tool, on whatever transport it calls it. Raises NOT_PERMITTED."""
    if actor.agent is not None and not rules.may_use(actor.agent.permissions, tool):
        raise refused("tools", f"{actor.name!r} ({actor.agent.preset}) does not have the tool {tool}.")


def check_not_disabled(actor: Actor, tool: str) -> None:
    """Check that a tool which every agent may use on itself was not taken from this agent. Raises NOT_PERMITTED."""
    if actor.agent is not None and tool in actor.agent.disabled_tools:
        raise refused("tools", f"The tool {tool} was taken from {actor.name!r}.")


def _ancestors(agent: PoolAgent) -> Iterator[str]:
    while agent.parent is not None:
        agent = agent.parent
        yield agent.pk


def refused(rule: str, message: str) -> NexusError:
    """Return a NOT_PERMITTED error that names the rule, for the caller to raise."""
    return NexusError(ControlCode.NOT_PERMITTED, message, {"rule": rule})
