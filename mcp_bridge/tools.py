"""Operations as MCP tools: names, short schemas, annotations, and the conversion of an outcome into a tool's result."""

from __future__ import annotations

from functools import cache
from typing import Any

from mcp_types import CallToolResult, Tool, ToolAnnotations

from nexus.core.operations.parameters import parameters_schema
from nexus.core.operations.registry import Choice, Operation
from nexus.core.operations.replies import Outcome, Reply


@cache
def tools(choice: Choice, *, bound: bool = False) -> list[Tool]:
    """Return every operation of the chosen toolsets that is a tool for agents, in the order of the registry.

    A connection that is `bound` to an agent need not name the agent.
    """
    return [tool(operation, bound=bound) for toolset in choice for operation in toolset.tools]


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
        output_schema=dict(operation.toolset.reply.schema),
        annotations=hints,
    )
