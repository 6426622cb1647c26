"""A client of the extension on tasks, over the SDK's own support for extensions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.session import ClientSession
from mcp_types import CallToolResult, Request, RequestParams, Result

from tests.acceptance.hub import START_SECONDS

Envelope = dict[str, Any]


class Of(RequestParams):
    """Which task; `tasks/update` has answers beside it."""

    task_id: str
    input_responses: dict[str, Any] | None = None


class AboutTask(Request[Of, str]):
    """Any of the methods."""

    method: str
    params: Of
    name_param = "taskId"


class Task(Result):
    """A task, as any method tells of it."""

    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int
    poll_interval_ms: int | None = None
    status_message: str | None = None
    result: CallToolResult | None = None

    def envelope(self) -> Envelope:
        """What the call answered in the end."""
        assert self.status == "completed" and self.result is not None, self
        content: Envelope | None = self.result.structured_content
        assert content is not None
        return content


class Created(Task):
    """What a call is answered that became a task."""

    result_type: Literal["task"] = "task"


class Tasks(ClientExtension):
    """Declares that a call may be answered with a task, and polls it to its end."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, heard: asyncio.Queue[Task] | None = None) -> None:
        self._heard: asyncio.Queue[Task] = heard or asyncio.Queue()

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        return (NotificationBinding(method="notifications/tasks", params_type=Task, handler=self._heard.put),)

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return (ResultClaim(result_type="task", model=Created, resolve=_to_its_end),)


async def _to_its_end(task: Created, context: ClaimContext) -> CallToolResult:
    ended = await end_of(context.session, task.task_id)
    assert ended.result is not None
    return ended.result


async def end_of(session: ClientSession, task_id: str) -> Task:
    """Poll a task, sooner than it asks for, until it has ended."""
    async with asyncio.timeout(START_SECONDS):
        while (task := await get(session, task_id)).status == "working":
            await asyncio.sleep(0.02)
    return task


async def get(session: ClientSession, task_id: str) -> Task:
    """`tasks/get`."""
    return await session.send_request(AboutTask(method="tasks/get", params=Of(task_id=task_id)), Task)


async def cancel(session: ClientSession, task_id: str) -> None:
    """`tasks/cancel`."""
    await session.send_request(AboutTask(method="tasks/cancel", params=Of(task_id=task_id)), Result)


async def update(session: ClientSession, task_id: str) -> None:
    """`tasks/update`, with answers that nobody asked for."""
    params = Of(task_id=task_id, input_responses={"name": {"action": "decline"}})
    await session.send_request(AboutTask(method="tasks/update", params=params), Result)


async def begun(client: Client, name: str, **arguments: Any) -> Task:
    """The task that a call became."""
    task = await client.session.call_tool(name, arguments, allow_claimed=True)
    assert isinstance(task, Created), task
    return task
