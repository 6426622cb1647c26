"""Operators' operations on MCP tasks: calls that wait."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from coordination.toolset import operation
from mcp_bridge import tasks
from mcp_bridge.listing import SHOWN, listed
from mcp_bridge.models import TaskStatus
from nexus.core.clock import iso
from nexus.core.database.store import write
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Limit, Params
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.core.operations.schemas import Time

LISTED, MOST_LISTED = 50, 500


class ListTasks(Params):
    which: Annotated[Literal["waiting", "kept"], Field(description="kept: those that are over, too.")] = "waiting"
    agent_id: Annotated[Id | None, Field(description="Only this agent's waiting calls.")] = None
    cursor: Annotated[str | None, Field(description="next_cursor of the page before, verbatim.")] = None
    limit: Annotated[Limit, Field(description=f"{MOST_LISTED} at most.")] = LISTED


class McpTaskRow(TypedDict):
    task_id: str
    agent_id: Annotated[str | None, Field(description="Who waits; null: a process without a key.")]
    toolset: str
    operation: Annotated[str, Field(description="What it waits for.")]
    arguments: Annotated[str, Field(description=f"JSON; the first {SHOWN} characters.")]
    status: Annotated[str, Field(description="working, completed or cancelled.")]
    since: Time
    until: Time


class McpTasks(TypedDict):
    tasks: list[McpTaskRow]
    next_cursor: str | None


@operation(ListTasks, Code.VALIDATION_ERROR, guards=(OPERATORS_ONLY,), tool=False, read_only=True)
def mcp_task_list(p: ListTasks, caller: Caller) -> McpTasks:
    """Calls over MCP that became tasks: which agent waits for what, since when and until when; the newest first."""
    page = listed(waiting=p.which == "waiting", agent_id=p.agent_id, limit=min(p.limit, MOST_LISTED), cursor=p.cursor)
    return {"tasks": [_row(task) for task in page.tasks], "next_cursor": page.next_cursor}


class CancelTask(Params):
    task_id: Id


class McpTaskEnd(TypedDict):
    task_id: str
    status: str


@operation(CancelTask, Code.VALIDATION_ERROR, Code.NOT_FOUND, guards=(OPERATORS_ONLY,), tool=False, idempotent=True)
def mcp_task_cancel(p: CancelTask, caller: Caller) -> McpTaskEnd:
    """Have an agent wait no more, as if it had gone away; a task that ended stays as it is."""
    with write():
        if tasks.find(p.task_id, caller).status == TaskStatus.WORKING:
            with domain().acting(caller.operator, "mcp_task_cancel", task_id=p.task_id):
                tasks.give_up(p.task_id, caller)
        return {"task_id": p.task_id, "status": tasks.find(p.task_id, caller).status}


def _row(task: Any) -> McpTaskRow:
    return {
        "task_id": task.pk,
        "agent_id": task.agent_id,
        "toolset": task.toolset,
        "operation": task.operation,
        "arguments": task.begins,
        "status": task.status,
        "since": iso(task.created_at),
        "until": iso(task.waits_until),
    }
