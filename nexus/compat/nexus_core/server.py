"""The MCP server of nexus-core 0.21 for its clients: the same tools, answers and words, over our operations."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from nexus.compat.nexus_core.arguments import InvalidArguments, checked, kind_of
from nexus.compat.nexus_core.tools import NEXUS_CORE, words
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import aperform
from nexus.core.operations.errors import NexusError
from nexus.core.operations.validation import MAX_NODES, unstorable

NAME, VERSION = "nexus-core", "0.21.0"
PROJECT_ROOT = "NEXUS_PROJECT_ROOT"  # the variable that names the project
SURROGATE = re.compile("[\ud800-\udfff]")
TOOLS: list[dict[str, Any]] = json.loads(files(__package__).joinpath("tools.json").read_text("utf-8"))
SCHEMAS = {tool["name"]: tool["inputSchema"] for tool in TOOLS}


def build_server(caller: Caller) -> Server[Any]:
    """Return a server whose calls act as the caller."""

    async def list_tools(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult.model_validate({"tools": TOOLS})

    async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        return CallToolResult.model_validate(await call_result(caller, params.name, params.arguments))

    async def as_it_answers(ctx: Any, call_next: CallNext) -> HandlerResult:
        """Answer in its form; the SDK's has fields that it does not write."""
        params = ctx.params or {}
        if ctx.method == "tools/list":
            return {"tools": TOOLS}
        if ctx.method == "tools/call":
            name, arguments = params.get("name"), params.get("arguments")
            if not isinstance(name, str) or not isinstance(arguments, dict | None):
                raise _malformed(params)
            return await call_result(caller, name, arguments)
        found = await call_next(ctx)
        if ctx.method == "initialize" and isinstance(found, dict):
            found["capabilities"] = {"tools": {"listChanged": True}}
        return found

    server = Server[Any](NAME, version=VERSION, on_list_tools=list_tools, on_call_tool=call_tool)
    server.middleware += [as_it_answers]
    return server


async def call_result(caller: Caller, name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the result of a call."""
    if name not in SCHEMAS:
        return _error(f"MCP error -32602: Tool {name} not found")
    try:
        given = checked(SCHEMAS[name], arguments or {})
    except InvalidArguments as error:
        said = f"Input validation error: Invalid arguments for tool {name}: {error}"
        return _error(f"MCP error -32602: {said}")
    try:
        problem = unstorable(given, lambda _: MAX_NODES)
    except NexusError as error:
        problem = error
    if problem is not None:
        return _error(problem.message)
    outcome = await aperform(NEXUS_CORE, caller, name, {"project_root": project_root(), "given": given})
    if outcome.error is not None:
        return _error(words(name, given, outcome.error))
    return {"content": [{"type": "text", "text": _json(outcome.data)}]}


def project_root() -> str:
    """Return the project: of the variable, else the working directory's repository, else that directory."""
    if named := os.environ.get(PROJECT_ROOT):
        return named
    here = Path.cwd()
    return str(next((each for each in (here, *here.parents) if (each / ".git").exists()), here))


def _error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _json(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, indent=2)
    return SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def _malformed(params: Mapping[str, Any]) -> MCPError:
    field, expected = ("name", "string") if not isinstance(params.get("name"), str) else ("arguments", "record")
    received = kind_of(params[field]) if field in params else "undefined"
    fault = {
        "expected": expected,
        "code": "invalid_type",
        "path": ["params", field],
        "message": f"Invalid input: expected {expected}, received {received}",
    }
    return MCPError(INTERNAL_ERROR, json.dumps([fault], indent=2))
