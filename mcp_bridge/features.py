"""The chosen toolsets as MCP clients see them: tools with short schemas and their results, resources and prompts."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolResult,
    GetPromptResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

from nexus.core.config import CoreSettings
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import answer_schema, parameters_schema
from nexus.core.operations.registry import Choice, Operation
from nexus.core.operations.replies import AgentResource, Outcome, Reply

MAX_INSTRUCTIONS = 2_048  # characters: clients cut what is longer


def instructions(choice: Choice) -> str:
    """Return the text that an agent gets when it connects: the instructions of each toolset. If they are too long for
    clients, the first paragraph of each stays, which has its rules, and of the others as many as there is room for."""
    ranked = [
        (rank, at, paragraph)
        for at, toolset in enumerate(choice)
        for rank, paragraph in enumerate(toolset.instructions().strip().split("\n\n"))
        if paragraph
    ]
    kept, room = [], MAX_INSTRUCTIONS
    for each in sorted(ranked):
        room -= len(each[2]) + 2
        if room < 0 and each[0]:
            break
        kept.append(each)
    return "\n\n".join(paragraph for _, _, paragraph in sorted(kept, key=lambda each: (each[1], each[0])))


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


async def read_resource(choice: Choice, uri: str, caller: Caller) -> ReadResourceResult:
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


def tools(choice: Choice, *, bound: bool = False) -> list[Tool]:
    """Return every operation of the chosen toolsets that is a tool for agents, in the order of the registry.

    A connection that is `bound` to an agent need not name the agent.
    """
    return _tools(choice, bound, CoreSettings.current().max_inline_bytes)


@cache
def _tools(choice: Choice, bound: bool, limit: int) -> list[Tool]:  # the limit stands in descriptions
    found = {operation.name: operation for toolset in choice for operation in toolset.tools}  # two may share one
    return [tool(operation, bound=bound) for operation in found.values()]


def result(reply: Reply, outcome: Outcome) -> CallToolResult:
    """Return an outcome in a toolset's form: its body as structured content, its text for models and older clients."""
    return CallToolResult.model_validate(wire(reply, outcome))


def wire(reply: Reply, outcome: Outcome) -> dict[str, Any]:
    """Return the same in wire form."""
    body = reply.body(outcome)
    content = [{"type": "text", "text": reply.text(outcome, body)}]
    return {"content": content, "structuredContent": body, "isError": outcome.error is not None}


def tool(operation: Operation[Any], *, bound: bool = False) -> Tool:
    """Return an operation as clients see it."""
    hints = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    if not operation.read_only:  # the protocol's defaults are left out, to save tokens in every agent's context
        hints = ToolAnnotations(
            destructive_hint=operation.destructive, idempotent_hint=operation.idempotent or None, open_world_hint=False
        )
    data = operation.data if operation.toolset.reply.bare else None
    schema = parameters_schema(operation.params, accepts_anything=operation.accepts_anything)
    if bound and operation.acts_as in schema.get("required", ()):
        schema["required"].remove(operation.acts_as)
        if not schema["required"]:
            del schema["required"]
    return Tool(
        name=operation.name,
        title=operation.name.replace("_", " ").capitalize(),
        description=operation.description,
        input_schema=schema,
        output_schema=dict(operation.toolset.reply.schema) if data is None else answer_schema(data),
        annotations=hints,
    )
