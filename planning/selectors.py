"""The reads of planning."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from django.db.models import QuerySet

from core.operations.errors import NexusError
from planning import rules, schemas
from planning.directory import Directory
from planning.models import Cycle, Task, TaskStatus
from planning.schemas import TasksDocument

DECISIONS = "state/decisions.json"  # which some consumers write


class Progress(NamedTuple):
    """The tasks of a cycle, counted."""

    total: int
    completed: int
    pending: int
    in_progress: int
    ready: list[int]


def progress(tasks: TasksDocument) -> Progress:
    """How far the tasks are; `pending` whether or not they could begin."""
    status = {task["id"]: str(task["status"]) for task in tasks["tasks"]}
    counted = list(status.values())
    deps = {task["id"]: task["deps"] for task in tasks["tasks"]}
    return Progress(
        len(counted),
        counted.count(TaskStatus.COMPLETED),
        counted.count(TaskStatus.PENDING),
        counted.count(TaskStatus.IN_PROGRESS),
        rules.ready(deps, status),
    )


def holders(workspace_id: str) -> dict[int, str]:
    """By task of the open cycle, the agent that holds it by a handoff."""
    held = Task.objects.current(workspace_id).exclude(held_by=None)
    return {number: holder for number, holder in held.values_list("number", "held_by") if holder}


def cycles(workspace_id: str | None, query: str | None) -> QuerySet[Cycle]:
    """The cycles that history.json lists, oldest first; those that have the query anywhere, whatever its case.

    Without a workspace, those of all.
    """
    found = Cycle.objects.filter(position__isnull=False).order_by("completed_at", "pk")
    if workspace_id is not None:
        found = found.filter(workspace_id=workspace_id).order_by("position", "pk")
    return found.filter(words__contains=query.lower()) if query else found


class Snapshot(NamedTuple):
    """What the state files say now; None for one that is missing or malformed."""

    tasks: TasksDocument | None
    decisions: list[Any]


def snapshot(root: str) -> Snapshot:
    """The tasks' file and the decisions, as they are on disk; malformed files are passed over.

    Raises STATE_UNAVAILABLE.
    """
    with Directory(root) as directory:
        content, decided = directory.read(schemas.TASKS.path), directory.read(DECISIONS)
    tasks = None
    if content is not None:
        try:
            tasks = schemas.TASKS.parse(content)
        except NexusError:
            tasks = None
    decisions = _listed(decided)
    if decisions is None:
        decisions = list(tasks["decisions"]) if tasks else []
    return Snapshot(tasks, decisions)


def _listed(content: bytes | None) -> list[Any] | None:
    """The list of decisions that a file holds, bare or below `decisions`; None where it holds none."""
    try:
        document = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
    found = document.get("decisions") if isinstance(document, dict) else document
    return found if isinstance(found, list) else None
