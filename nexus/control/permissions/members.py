"""Authority in the pool: who calls, whether the caller may act on an agent (identity first, then lineage), and the
ceiling of a pool agent's calls on the bus.

The ceiling is checked for every call and transport. The hub itself has no such limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q

from coordination.models import Workspace
from nexus.control import sql
from nexus.control.errors import ControlCode
from nexus.control.models import PoolAgent
from nexus.control.permissions import rules
from nexus.control.permissions.rules import Preset
from nexus.control.toolset import CONTROL
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller
from nexus.core.operations.errors import NexusError, not_found
from nexus.core.operations.registry import Operation


@dataclass(frozen=True)
class Actor:
    """The caller: an agent of the pool, or an operator, who may do everything."""

    name: str
    agent: PoolAgent | None = None

    @property
    def is_operator(self) -> bool:
        return self.agent is None


def actor_of(caller: Caller) -> Actor:
    """Return the actor that a caller is in the pool.

    A local process that is bound to no agent acts as an operator: it can read the token's file.
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
    return PoolAgent.objects.living().filter(agent_id=agent_id).first()


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
    """Check that the actor is an operator, the agent itself or one of its ancestors. Raises NOT_PERMITTED."""
    if actor.agent is None or actor.agent.pk == agent.pk or actor.agent.pk in ancestors(agent):
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


def family(agent: PoolAgent) -> Q:
    """Return the condition for an agent to have the same owner as this one."""
    return reduce(or_, (Q(**{f"{'parent__' * level}pk": agent.owner}) for level in range(rules.DEEPEST + 1)))


def ancestors(agent: PoolAgent) -> Iterator[str]:
    """Yield the pool_agent_ids of the agents above an agent."""
    while agent.parent is not None:
        agent = agent.parent
        yield agent.pk


def refused(rule: str, message: str) -> NexusError:
    """Return a NOT_PERMITTED error that names the rule, for the caller to raise."""
    return NexusError(ControlCode.NOT_PERMITTED, message, {"rule": rule})


PROJECT_PARAMETER = "project_root"  # the parameter that names a directory
EVERYONES = frozenset((*rules.TOOLSETS[Preset.WORKER], CONTROL.name))  # CONTROL's operations check their callers

TURN_TRANSPORT = "pool"  # the transport of a turn's calls; their connection is `pool:` and the pool_agent_id


def check_ceiling(caller: Caller, operation: Operation[Any], params: Any) -> None:
    """Check a pool agent's call against its ceiling. Raises NOT_PERMITTED in three cases: its preset does not have the
    toolset; it names a directory that is neither at or below its own nor a project already (so it cannot create
    projects elsewhere, nor learn whether a directory exists); or its turn outlived the agent, whose name may belong to
    another by now."""
    by_turn = caller.transport == TURN_TRANSPORT
    if by_turn and not sql.is_living(pk=(caller.connection or "").removeprefix(f"{TURN_TRANSPORT}:")):
        raise refused("member", f"This agent has ended; its name {caller.agent_id!r} may belong to another agent now.")
    toolset, named = operation.toolset.name, getattr(params, PROJECT_PARAMETER, None)
    if caller.agent_id is None or (named is None and toolset in EVERYONES):
        return
    for preset, cwd in sql.ceilings(agent_id=caller.agent_id):
        if toolset not in EVERYONES and toolset not in rules.TOOLSETS[Preset(preset)]:
            raise refused("toolsets", f"An agent with the preset {preset} does not have the toolset {toolset}.")
        if named is not None and not _may_name(cwd, os.path.realpath(named)):
            raise refused(
                "cwd",
                f"{PROJECT_PARAMETER} must lie at or below this agent's directory, {cwd}, or be a project already; "
                f"{named[:200]} is neither.",
            )


def _may_name(cwd: str, project: str) -> bool:
    return rules.within(project, (cwd,)) or Workspace.objects.filter(root_realpath=project).exists()
