"""MCP's extension `io.modelcontextprotocol/tasks`, of the protocol 2026-07-28: the answer to a waiting call of a client
that declares the extension, and the methods with which the client gets the result later."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from mcp.server.context import HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CancelTaskRequestParams,
    EmptyResult,
    GetTaskRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_bridge import tasks
from mcp_bridge.context import CallerOf, Context, is_modern
from mcp_bridge.errors import as_mcp
from mcp_bridge.models import Task, TaskStatus
from nexus.core.clock import iso
from nexus.core.operations.errors import Code, NexusError

IDENTIFIER = "io.modelcontextprotocol/tasks"
POLL_MS = 1_000
VERSIONS = frozenset(MODERN_PROTOCOL_VERSIONS)
T = TypeVar("T")


class UpdateTaskRequestParams(GetTaskRequestParams):
    """Answers to the questions of a task; our tasks ask none."""

    input_responses: dict[str, Any]


class Tasks(Extension):
    """The methods, for clients that declared the extension with the request."""

    identifier = IDENTIFIER

    def __init__(self, caller_of: CallerOf) -> None:
        self._caller_of = caller_of

    def methods(self) -> Sequence[MethodBinding]:
        return (
            MethodBinding("tasks/get", GetTaskRequestParams, self._get, VERSIONS),
            MethodBinding("tasks/update", UpdateTaskRequestParams, self._update, VERSIONS),
            MethodBinding("tasks/cancel", CancelTaskRequestParams, self._cancel, VERSIONS),
        )

    async def _get(self, ctx: Context, params: GetTaskRequestParams) -> HandlerResult:
        return described(await _answered(tasks.get(params.task_id, self._caller_of(ctx))))

    async def _update(self, ctx: Context, params: UpdateTaskRequestParams) -> HandlerResult:
        await _answered(tasks.stored_task(params.task_id, self._caller_of(ctx)))
        return EmptyResult()

    async def _cancel(self, ctx: Context, params: CancelTaskRequestParams) -> HandlerResult:
        await _answered(tasks.cancel(params.task_id, self._caller_of(ctx)))
        return EmptyResult()


def install(server: Server[Any], extension: Extension) -> None:
    """Add the methods of an extension to a server, and announce it."""
    for method in extension.methods():
        server.add_request_handler(method.method, method.params_type, _declaring(extension.identifier, method))
    server.extensions[extension.identifier] = extension.settings()


def _declaring(identifier: str, method: MethodBinding) -> Callable[[Context, Any], Awaitable[HandlerResult]]:
    async def handler(ctx: Context, params: Any) -> HandlerResult:
        if ctx.protocol_version not in (method.protocol_versions or VERSIONS):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", method.method)
        require(ctx, identifier)
        return await method.handler(ctx, params)

    return handler


async def _answered(asking: Awaitable[T]) -> T:
    """Return the result; an unknown task becomes the error for an invalid parameter."""
    try:
        return await asking
    except Exception as error:
        code = error.code if isinstance(error, NexusError) else None
        raise as_mcp(error, INVALID_PARAMS if code is Code.NOT_FOUND else INTERNAL_ERROR) from None


def declared(ctx: Context, identifier: str = IDENTIFIER) -> bool:
    """Return whether the client declared the extension with this request."""
    capabilities = ctx.session.client_capabilities
    extensions = capabilities.extensions if capabilities else None
    return is_modern(ctx) and identifier in (extensions or {})


def require(ctx: Context, identifier: str = IDENTIFIER) -> None:
    """Check that the client declared the extension with this request. Raises the MCP error."""
    if not declared(ctx, identifier):
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"This is for clients that declare the extension {identifier}.",
            {"requiredCapabilities": {"extensions": {identifier: {}}}},
        )


def created(task: Task) -> dict[str, Any]:
    """Return the answer to a call that became a task."""
    return {"resultType": "task", **described(task)}


def described(task: Task) -> dict[str, Any]:
    """Return a task as clients see it, with its result if it ended."""
    fields = {
        "taskId": task.task_id,
        "status": TaskStatus(task.status).value,
        "createdAt": iso(task.created_at),
        "lastUpdatedAt": iso(task.updated_at),
        "ttlMs": _milliseconds(task.created_at, task.expires_at),
    }
    if task.result is not None:
        return {**fields, "result": json.loads(task.result)}
    if task.status == TaskStatus.WORKING:
        waits = f"{task.operation} waits, until {iso(task.waits_until)} at the latest."
        return {**fields, "pollIntervalMs": POLL_MS, "statusMessage": waits}
    return fields


def _milliseconds(start: datetime, end: datetime) -> int:
    return round((end - start).total_seconds() * 1000)
