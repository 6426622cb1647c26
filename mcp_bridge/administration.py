"""Operators' operations on MCP tasks: calls that wait."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

from django.db.models.functions import Substr
from pydantic import Field
from typing_extensions import TypedDict

from coordination.toolset import operation
from mcp_bridge import tasks
from mcp_bridge.models import Task, TaskStatus
from nexus.core.clock import iso, now
from nexus.core.contributions import Action
from nexus.core.database.store import write
from nexus.core.domain import domain
from nexus.core.operations import pages
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, invalid
from nexus.core.operations.parameters import Id, Limit, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY

LISTED, MOST_LISTED = 50, 500


class ListTasks(Params):
    which: Annotated[Literal["waiting", "kept"], Field(description="kept: those that are over, too.")] = "waiting"
    agent_id: Annotated[Id | None, Field(description="Only this agent's waiting calls.")] = None
    cursor: Annotated[str | None, Field(description="next_cursor of the previous page, unchanged.")] = None
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
    page = list_tasks(
        waiting=p.which == "waiting", agent_id=p.agent_id, limit=min(p.limit, MOST_LISTED), cursor=p.cursor
    )
    return {"tasks": [_row(task) for task in page.tasks], "next_cursor": page.next_cursor}


class CancelTask(Params):
    task_id: Id


class McpTaskEnd(TypedDict):
    task_id: str
    status: str


@operation(CancelTask, Code.VALIDATION_ERROR, Code.NOT_FOUND, guards=(OPERATORS_ONLY,), tool=False, idempotent=True)
def mcp_task_cancel(p: CancelTask, caller: Caller) -> McpTaskEnd:
    """Cancel an agent's waiting call, as if the agent had gone away; a task that ended stays as it is."""
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


SHOWN = 200  # characters of a call's arguments


class Listed(NamedTuple):
    """A page of tasks, with the beginning of each one's arguments as `begins`, and the cursor of the next page."""

    tasks: list[Any]
    next_cursor: str | None


def list_tasks(*, waiting: bool, agent_id: str | None, limit: int, cursor: str | None) -> Listed:
    """Return a page of waiting tasks, or of all stored ones, newest first.

    Raises VALIDATION_ERROR for an invalid cursor.
    """
    moment = now()
    rows = Task.objects.waiting(moment) if waiting else Task.objects.kept(moment)
    if agent_id is not None:
        rows = rows.of(agent_id)
    if cursor is not None:
        created_at, task_id = _decoded(cursor)
        rows = rows.filter(created_at__lte=created_at).exclude(created_at=created_at, task_id__gte=task_id)
    rows = rows.annotate(begins=Substr("arguments", 1, SHOWN)).defer("arguments", "answered", "result")
    page = list(rows.order_by("-created_at", "-task_id")[: limit + 1])
    last = page[limit - 1] if len(page) > limit else None
    return Listed(page[:limit], pages.encode_cursor(last.created_at, last.task_id) if last else None)


def _decoded(cursor: str) -> tuple[datetime, str]:
    try:
        created_at, task_id = pages.decode_cursor(cursor, datetime, str)
        return created_at, task_id
    except ValueError:
        raise invalid("cursor is not one of mcp_task_list: pass next_cursor back as it came.", field="cursor") from None


def titles(task_ids: Collection[str]) -> dict[str, str]:
    """Return the titles of tasks, by id."""
    rows = Task.objects.filter(pk__in=task_ids).values_list("pk", "operation", "agent_id")
    return {pk: f"{operation} of {agent_id}" if agent_id else operation for pk, operation, agent_id in rows}


ACTIONS = (
    Action(
        "mcp_task_cancel",
        "Cancel",
        "cancelled: it no longer waits",
        ("call that waits", "calls that wait"),
        lambda task_id: {"task_id": task_id},
        titles,
    ),
)
