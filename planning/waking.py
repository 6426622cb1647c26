"""Tasks that wake the agents that Nexus runs: those of their own that can begin."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from core.contributions import Calling, WakeKind
from planning import work
from planning.models import Task, TaskStatus


def calling(agent_id: str, workspaces: Collection[str]) -> Iterator[Calling]:
    """The agent's pending tasks whose dependencies are met, wherever their project lies."""
    mine = Task.objects.on_their_own(TaskStatus.PENDING).owned_by([agent_id])
    ready: dict[str, set[str]] = {}
    for task in mine.select_related("workspace").order_by("task_key"):
        if task.workspace_id not in ready:
            ready[task.workspace_id] = work.ready(task.workspace_id)
        if task.task_key in ready[task.workspace_id]:
            yield Calling(
                task.task_key,
                f"Task {task.number} of yours can begin (project_root {task.workspace.root_realpath}): task_update("
                f'id={task.number}, status="in_progress") takes it.',
                {"title": task.title, "context": task.context},
                task.created_by,
                task.created_at,
                task.updated_at,
            )


WAKES = WakeKind(
    "task",
    "planned tasks of its own that can begin",
    frozenset(("task.ready", "task.added", "task.updated", "task.completed", "plan.reopened")),
    calling,
)
