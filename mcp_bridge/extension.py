"""MCP's extension `io.modelcontextprotocol/tasks`, of the protocol 2026-07-28: the answer to a waiting call of a client
that declares the extension, and the methods with which the client gets the result later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypeVar

from mcp.server.context import HandlerResult
from mcp.server.extension import Extension, MethodBinding
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CancelTaskRequestParams,
    EmptyResult,
    GetTaskRequestParams,
    Notification,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_bridge import tasks
from mcp_bridge.context import CallerOf, Context, as_mcp, is_modern
from mcp_bridge.models import Task, TaskStatus
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.runner import documented
from nexus.core.waiting import waiter

IDENTIFIER = "io.modelcontextprotocol/tasks"
POLL_MS = 1_000
VERSIONS = frozenset(MODERN_PROTOCOL_VERSIONS)
T = TypeVar("T")
LOOK_SECONDS = 5.0  # between two checks of a task without an event: time may end it, or its agent


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


class TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """An ended task with its result."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


class _Session:
    """A request's session whose acknowledgement also names the tasks."""

    def __init__(self, session: Any, task_ids: list[str], acknowledged: asyncio.Event) -> None:
        self._session, self._task_ids, self._acknowledged = session, task_ids, acknowledged

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        if isinstance(notification, SubscriptionsAcknowledgedNotification):
            honoured = notification.params.notifications.model_copy(update={"taskIds": self._task_ids})
            params = notification.params.model_copy(update={"notifications": honoured})
            notification = notification.model_copy(update={"params": params})
        await self._session.send_notification(notification, related_request_id=related_request_id)
        self._acknowledged.set()


async def listened(
    ctx: Context, params: SubscriptionsListenRequestParams, caller: Caller, listen: ListenHandler
) -> SubscriptionsListenResult:
    """Call `listen`, and also send what becomes of the tasks that the request names, if they are the caller's.

    Raises an MCP error for a client that did not declare the extension, for a list that is malformed or too long,
    for a key that is no longer valid, and where the store cannot be read.
    """
    named = (params.notifications.model_extra or {}).get("taskIds")
    if named is None:
        return await listen(ctx, params)
    require(ctx)
    if not isinstance(named, list) or len(named) > tasks.MOST_WAITING or not all(isinstance(id, str) for id in named):
        raise MCPError(INVALID_PARAMS, f"taskIds is a list of at most {tasks.MOST_WAITING} ids of tasks.")
    task_ids = [task_id for task_id in dict.fromkeys(named) if await _is_there(task_id, caller)]
    acknowledged = asyncio.Event()
    session: Any = _Session(ctx.session, task_ids, acknowledged)
    following = asyncio.ensure_future(_follow(ctx, task_ids, caller, acknowledged, listen.close))
    try:
        return await listen(replace(ctx, session=session), params)
    finally:
        following.cancel()


async def _is_there(task_id: str, caller: Caller) -> bool:
    try:
        await tasks.stored_task(task_id, caller)
    except Exception as error:
        if isinstance(error, NexusError) and error.code is Code.NOT_FOUND:
            return False
        raise as_mcp(error) from None
    return True


async def _follow(
    ctx: Context, task_ids: list[str], caller: Caller, acknowledged: asyncio.Event, end: Callable[[], None]
) -> None:
    """Send the end of each task; `end` the stream where that is impossible: the key is no longer valid, or the store
    is away."""
    await acknowledged.wait()  # it must be the first on the stream
    try:
        async with asyncio.TaskGroup() as notifying:
            for task_id in task_ids:
                notifying.create_task(_notify_end(ctx, task_id, caller))
    except* Exception as failures:
        for failure in failures.exceptions:
            documented(failure)  # logs unexpected errors
        end()


async def _notify_end(ctx: Context, task_id: str, caller: Caller) -> None:
    # first, so that every later event wakes it
    async with waiter().park(await tasks.interest(task_id, caller)) as parked:
        while (task := await tasks.get(task_id, caller)).status == TaskStatus.WORKING:
            await parked.wait(LOOK_SECONDS)
    params = {**described(task), "_meta": {SUBSCRIPTION_ID_META_KEY: ctx.request_id}}
    notification: Any = TaskNotification(params=params)
    await ctx.session.send_notification(notification, related_request_id=ctx.request_id)
