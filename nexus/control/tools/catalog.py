"""The tools that an agent is offered: those of its preset, without those that were taken from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from pydantic import ValidationError

from nexus.control import rules
from nexus.control.rules import Permissions
from nexus.control.runners.base import Scene
from nexus.control.services.transcript import estimate
from nexus.control.tools import hub, own
from nexus.control.tools.own import Own
from nexus.control.tools.paths import ToolFailed
from nexus.core.operations.registry import Operation
from nexus.core.operations.schemas import Schema, parameters_schema

MOST_CHARACTERS = 64 * 1024  # of a result; an agent's context pays for it


@dataclass(frozen=True)
class Tool:
    """A tool: its description for the model, and its function."""

    name: str
    description: str
    schema: Schema
    call: Callable[[Scene, Mapping[str, Any]], Awaitable[str]]  # raises ToolFailed

    @property
    def tokens(self) -> int:
        """The estimated tokens of its description in every request."""
        return estimate(f"{self.name}{self.description}{self.schema}")


def tools(permissions: Permissions) -> Mapping[str, Tool]:
    """Return every tool that an agent has, by name."""
    return _tools(permissions.preset, permissions.disabled_tools)


def tokens(permissions: Permissions) -> int:
    """Estimate the tokens that the tools' descriptions take in every request."""
    return sum(tool.tokens for tool in tools(permissions).values())


async def call(scene: Scene, name: str, arguments: Mapping[str, Any]) -> str:
    """Call a tool and return its result or its error as text for the model."""
    tool = tools(scene.agent.permissions).get(name)
    if tool is None:
        return f"Error: there is no tool {name[:100]!r} for this agent."
    try:
        result = await tool.call(scene, arguments)
    except ToolFailed as failed:
        return f"Error: {failed}"
    if len(result) > MOST_CHARACTERS:
        return f"{result[:MOST_CHARACTERS]}\n[cut off after {MOST_CHARACTERS} characters of {len(result)}]"
    return result


@lru_cache(maxsize=64)
def _tools(preset: rules.Preset, disabled: frozenset[str]) -> Mapping[str, Tool]:
    offered = rules.USES[preset] - disabled
    found = {each.name: _of_own(each) for each in own.TOOLS if each.name in offered}
    for operation in hub.operations(preset, disabled):
        found.setdefault(operation.name, _of_hub(operation))
    return found


def _of_own(tool: Own) -> Tool:
    return Tool(tool.name, tool.description, parameters_schema(tool.params), partial(_called, tool))


def _of_hub(operation: Operation[Any]) -> Tool:
    schema = parameters_schema(operation.params, accepts_anything=operation.accepts_anything)
    return Tool(operation.name, operation.description, schema, partial(hub.call, operation))


async def _called(tool: Own, scene: Scene, arguments: Mapping[str, Any]) -> str:
    try:
        params = tool.params.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:100]
        raise ToolFailed(f"{where}: {first['msg']}.") from None
    return await tool.call(scene, params)
