"""The ceiling of a pool agent on the bus, checked for every call and transport. The hub itself has no such limit."""

from __future__ import annotations

import os
from typing import Any

from coordination.models import Workspace
from nexus.control import rules
from nexus.control.members import refused
from nexus.control.models import PoolAgent
from nexus.control.rules import Preset
from nexus.control.toolset import CONTROL
from nexus.core.database.prepared import Select, Slot
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Operation

PROJECT = "project_root"  # the parameter that names a directory
EVERYONES = frozenset((*rules.TOOLSETS[Preset.WORKER], CONTROL.name))  # CONTROL's operations check their callers

TURN = "pool"  # the transport of a turn's calls; their connection is `pool:` and the pool_agent_id
_is_living = Select(lambda: PoolAgent.objects.living().filter(pk=Slot("pk")).values_list("pk"))
_living = Select(lambda: PoolAgent.objects.living().filter(agent_id=Slot("agent_id")).values_list("preset", "cwd"))


def check(caller: Caller, operation: Operation[Any], params: Any) -> None:
    """Check a pool agent's call against its ceiling. Raises NOT_PERMITTED in three cases: its preset does not have the
    toolset; it names a directory that is neither at or below its own nor a project already (so it cannot create
    projects elsewhere, nor learn whether a directory exists); or its turn outlived the agent, whose name may belong to
    another by now."""
    if caller.transport == TURN and not _is_living(pk=(caller.connection or "").removeprefix(f"{TURN}:")):
        raise refused("member", f"This agent has ended; its name {caller.agent_id!r} may belong to another agent now.")
    toolset, named = operation.toolset.name, getattr(params, PROJECT, None)
    if caller.agent_id is None or (named is None and toolset in EVERYONES):
        return
    for preset, cwd in _living(agent_id=caller.agent_id):
        if toolset not in EVERYONES and toolset not in rules.TOOLSETS[Preset(preset)]:
            raise refused("toolsets", f"An agent with the preset {preset} does not have the toolset {toolset}.")
        if named is not None and not _may_name(cwd, os.path.realpath(named)):
            raise refused(
                "cwd",
                f"{PROJECT} must lie at or below this agent's directory, {cwd}, or be a project already; "
                f"{named[:200]} is neither.",
            )


def _may_name(cwd: str, project: str) -> bool:
    return rules.within(project, (cwd,)) or Workspace.objects.filter(root_realpath=project).exists()
