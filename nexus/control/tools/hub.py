"""Nexus's own operations as an agent's tools: called in process, as that agent, for its own project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from coordination.models import Workspace
from nexus.control import rules
from nexus.control.ceilings import PROJECT
from nexus.control.rules import Permissions, Preset
from nexus.control.runners.base import Scene
from nexus.control.tools.paths import ToolRefused, on_disk, resolved
from nexus.control.toolset import CONTROL, PREFIX
from nexus.core.operations.registry import Operation
from nexus.core.operations.toolsets import Choice, choose
from nexus.core.waiting import READERS, in_thread

ASKING = "ask_operator"


def operations(preset: Preset, disabled: frozenset[str]) -> Iterator[Operation[Any]]:
    """Yield the operations of the hub that an agent of this preset may call; every agent may ask an operator."""
    chosen = toolsets(preset)
    for toolset in chosen:
        for operation in toolset.tools:
            if toolset is not CONTROL or operation.name.removeprefix(PREFIX) not in disabled:
                yield operation
    if CONTROL not in chosen:
        yield CONTROL.find(ASKING)


def toolsets(preset: Preset) -> Choice:
    """Return the toolsets of this preset."""
    return choose(rules.TOOLSETS[preset])


async def call(operation: Operation[Any], scene: Scene, arguments: Mapping[str, Any]) -> str:
    """Call an operation and return the reply in the toolset's form. Raises ToolRefused for a project that is not the
    agent's."""
    named = arguments.get(PROJECT)
    if isinstance(named, str):  # otherwise it is absent, or validation refuses it
        arguments = {**arguments, PROJECT: await _project(scene.agent.permissions, named)}
    outcome = await scene.call(operation.toolset.name, operation.name, arguments)
    reply = operation.toolset.reply
    return reply.text(outcome, reply.body(outcome))


async def _project(permissions: Permissions, named: str) -> str:
    """Return the real path of a project. Raises ToolRefused unless it lies at or below the agent's directory, or is an
    existing project that contains it."""
    project = await on_disk(partial(resolved, permissions, named))
    if rules.within(project, (permissions.cwd,)):
        return project
    if rules.within(permissions.cwd, (project,)) and await in_thread(READERS, partial(_is_known, project)):
        return project
    raise ToolRefused(
        "cwd",
        f"{PROJECT} must lie at or below this agent's directory, {permissions.cwd}, or be a project that holds it; "
        f"{named[:200]} is neither.",
    )


def _is_known(project: str) -> bool:
    return Workspace.objects.filter(root_realpath=project).exists()
