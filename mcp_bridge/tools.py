"""Operations as MCP tools: names, short schemas, annotations, and the envelope as a tool's result."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations

from coordination.toolset import COORDINATION
from core.operations.registry import Operation

Schema = dict[str, Any]


@cache
def tools() -> list[Tool]:
    """Every operation that agents get, in the order of the registry."""
    return [_tool(operation) for operation in COORDINATION.operations.values() if operation.tool]


def result(envelope: dict[str, Any]) -> CallToolResult:
    """An envelope as a tool's result: as structured content and, for older clients, as JSON text."""
    return CallToolResult(
        content=[TextContent(type="text", text=_text(envelope))],
        structured_content=envelope,
        is_error=not envelope["ok"],
    )


def wire(envelope: dict[str, Any]) -> dict[str, Any]:
    """The same as it goes over the wire."""
    content = [{"type": "text", "text": _text(envelope)}]
    return {"content": content, "structuredContent": envelope, "isError": not envelope["ok"]}


def _text(envelope: dict[str, Any]) -> str:
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":"))


def _tool(operation: Operation[Any]) -> Tool:
    hints = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    if not operation.read_only:
        hints = ToolAnnotations(
            read_only_hint=False,
            destructive_hint=operation.destructive,
            idempotent_hint=operation.idempotent,
            open_world_hint=False,
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
