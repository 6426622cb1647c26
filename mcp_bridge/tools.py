"""Operations as MCP tools: names, short schemas, annotations, and how an outcome becomes a tool's result."""

from __future__ import annotations

from functools import cache
from typing import Any

from mcp_types import CallToolResult, Tool, ToolAnnotations

from core.operations.registry import Operation
from core.operations.replies import Outcome, Reply
from core.operations.toolsets import Choice

Schema = dict[str, Any]


@cache
def tools(choice: Choice) -> list[Tool]:
    """Every operation of the chosen toolsets that agents get, in the order of the registry."""
    return [tool(operation) for toolset in choice for operation in toolset.tools]


def result(reply: Reply, outcome: Outcome) -> CallToolResult:
    """An outcome in a toolset's form: its body as structured content, its text for models and older clients."""
    return CallToolResult.model_validate(wire(reply, outcome))


def wire(reply: Reply, outcome: Outcome) -> dict[str, Any]:
    """The same as it goes over the wire."""
    body = reply.body(outcome)
    content = [{"type": "text", "text": reply.text(outcome, body)}]
    return {"content": content, "structuredContent": body, "isError": outcome.error is not None}


def tool(operation: Operation[Any]) -> Tool:
    """An operation as clients are told of it."""
    hints = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    if not operation.read_only:  # what the protocol takes for granted is left out: every agent's context pays for it
        hints = ToolAnnotations(
            destructive_hint=operation.destructive, idempotent_hint=operation.idempotent or None, open_world_hint=False
        )
    return Tool(
        name=operation.name, description=operation.description, input_schema=_schema(operation), annotations=hints
    )


def _schema(operation: Operation[Any]) -> Schema:
    """The parameter model's JSON schema, without what costs an agent's context and tells it nothing."""
    full = operation.params.model_json_schema()
    schema: Schema = {"type": "object"}
    definitions = full.get("$defs", {})
    if properties := full.get("properties"):
        schema["properties"] = {name: _short(part, definitions) for name, part in properties.items()}
    if required := full.get("required"):
        schema["required"] = required
    if not operation.accepts_anything:
        schema["additionalProperties"] = False
    return schema


def _short(part: Schema, definitions: dict[str, Schema]) -> Schema:
    """One parameter: null and the null default are implied by not being required, bounds are the runner's to tell."""
    if reference := part.get("$ref"):
        part = definitions[reference.rsplit("/", 1)[-1]]
        return {"type": "object", "properties": {name: {} for name in part["properties"]}}
    short: Schema = {}
    options = [_short(option, definitions) for option in part.get("anyOf", []) if option.get("type") != "null"]
    if len(options) == 1:
        short = options[0]
    elif options:
        types = [option["type"] for option in options]
        short = {
            "type": types,
            **{name: value for option in options for name, value in option.items() if name == "items"},
        }
    for keyword in ("type", "enum", "const", "items", "description"):
        if keyword in part:
            short[keyword] = _short(part[keyword], definitions) if keyword == "items" else part[keyword]
    if part.get("default") is not None:
        short["default"] = part["default"]
    return short
