"""MCP tasks as operators see them: which agent waits for what, since when and until when."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models.functions import Substr

from mcp_bridge.models import Task
from nexus.core.clock import now
from nexus.core.operations import pages
from nexus.core.operations.errors import invalid

SHOWN = 200  # characters of a call's arguments


class Listed(NamedTuple):
    """A page of tasks, with the beginning of each one's arguments as `begins`, and the cursor of the next page."""

    tasks: list[Any]
    next_cursor: str | None


def listed(*, waiting: bool, agent_id: str | None, limit: int, cursor: str | None) -> Listed:
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
