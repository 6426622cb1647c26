"""MCP's resources and prompts of the chosen toolsets."""

from __future__ import annotations

import json
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.core.operations.registry import Choice
from nexus.core.operations.replies import AgentResource


def instructions(choice: Choice) -> str:
    """Return the text that an agent gets when it connects: the instructions of each toolset."""
    return "\n\n".join(text for toolset in choice if (text := toolset.instructions()))


def resources(choice: Choice) -> list[Resource]:
    """Return the reference pages."""
    return [
        Resource(uri=page.uri, name=page.name, description=page.description, mime_type="text/markdown")
        for toolset in choice
        for page in toolset.references
    ]


def templates(choice: Choice) -> list[ResourceTemplate]:
    """Return the templates of agents' own resources, which an agent reads or subscribes to."""
    return [
        ResourceTemplate(
            uri_template=resource.prefix + "{agent_id}",
            name=resource.name,
            description=resource.description,
            mime_type="application/json",
        )
        for toolset in choice
        for resource in toolset.agent_resources
    ]


def agent_of(choice: Choice, uri: str) -> tuple[AgentResource, str] | None:
    """Return the kind of an agent's own resource and the agent; None for any other resource."""
    every = (resource for toolset in choice for resource in toolset.agent_resources)
    return next(((resource, agent_id) for resource in every if (agent_id := resource.agent(uri))), None)


async def read(choice: Choice, uri: str, caller: Caller) -> ReadResourceResult:
    """Return a resource's content. Raises an MCP error for an unknown one, and for another agent's."""
    for page in (page for toolset in choice for page in toolset.references):
        if page.uri == uri:
            return _contents(uri, "text/markdown", page.text())
    if own := agent_of(choice, uri):
        resource, agent_id = own
        try:
            data = await resource.read(caller, agent_id)
        except NexusError as error:
            raise MCPError(INVALID_PARAMS, error.message, {"code": error.code}) from None
        return _contents(uri, "application/json", json.dumps(data, ensure_ascii=False))
    raise MCPError(INVALID_PARAMS, f"No such resource: {uri[:200]}", {"uri": uri[:200]})


def prompts(choice: Choice) -> list[Prompt]:
    """Return the procedures that a person may start."""
    return [
        Prompt(
            name=prompt.name,
            description=prompt.description,
            arguments=[
                PromptArgument(name=name, description=about, required=True) for name, about in prompt.arguments.items()
            ],
        )
        for toolset in choice
        for prompt in toolset.prompts
    ]


def prompt(choice: Choice, name: str, arguments: dict[str, str] | None) -> GetPromptResult:
    """Return a prompt, filled in. Raises an MCP error for an unknown one or a missing argument."""
    given = arguments or {}
    found = next((each for toolset in choice for each in toolset.prompts if each.name == name), None)
    if found is None:
        raise MCPError(INVALID_PARAMS, f"No such prompt: {name[:200]}")
    if missing := [needed for needed in found.arguments if not given.get(needed)]:
        raise MCPError(INVALID_PARAMS, f"The prompt needs {' and '.join(missing)}.")
    words = TextContent(type="text", text=found.text(given))
    return GetPromptResult(messages=[PromptMessage(role="user", content=words)])


def _contents(uri: str, mime_type: str, body: str) -> ReadResourceResult:
    contents: list[Any] = [TextResourceContents(uri=uri, mime_type=mime_type, text=body)]
    return ReadResourceResult(contents=contents)
