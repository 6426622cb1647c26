"""Notices of ended tasks on the stream of a `subscriptions/listen` that names them in `taskIds`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    Notification,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from mcp_bridge import tasks
from mcp_bridge.context import Context
from mcp_bridge.errors import as_mcp
from mcp_bridge.extension import described, require
from mcp_bridge.models import TaskStatus
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.runner import documented
from nexus.core.waiting import waiter

LOOK_SECONDS = 5.0  # between two checks of a task without an event: time may end it, or its agent


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
        async with asyncio.TaskGroup() as telling:
            for task_id in task_ids:
                telling.create_task(_tell_end(ctx, task_id, caller))
    except* Exception as failures:
        for failure in failures.exceptions:
            documented(failure)  # logs unexpected errors
        end()


async def _tell_end(ctx: Context, task_id: str, caller: Caller) -> None:
    # first, so that every later event wakes it
    async with waiter().park(await tasks.interest(task_id, caller)) as parked:
        while (task := await tasks.get(task_id, caller)).status == TaskStatus.WORKING:
            await parked.wait(LOOK_SECONDS)
    params = {**described(task), "_meta": {SUBSCRIPTION_ID_META_KEY: ctx.request_id}}
    notification: Any = TaskNotification(params=params)
    await ctx.session.send_notification(notification, related_request_id=ctx.request_id)
