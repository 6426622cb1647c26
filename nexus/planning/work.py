"""What handoffs are given of this app: the tasks that they carry (`handoffs.work` calls these)."""

from __future__ import annotations

from datetime import datetime

from coordination.services.workspaces import ProjectDirectory
from nexus.planning import mirror, selectors
from nexus.planning.models import STREAM as STREAM  # which `handoffs.work` asks for, too
from nexus.planning.models import Task, TaskStatus
from nexus.planning.services import tasks


def refresh(place: ProjectDirectory) -> None:
    """Before the transaction of a handoff that carries a task: the rows say what the project's files do."""
    mirror.take_in_beside(place)


def find(workspace_id: str, task_id: int) -> str:
    """The key of a task of the open cycle. Raises NOT_FOUND."""
    return tasks.find(workspace_id=workspace_id, number=task_id).task_key


def ready(workspace_id: str) -> set[str]:
    """The keys of the tasks whose dependencies are met: those that could begin."""
    pending = Task.objects.current(workspace_id).filter(status=TaskStatus.PENDING)
    return {task.pk for task in selectors.ready_among(list(pending.only("workspace_id", "status", "deps")))}


def started(task_key: str, place: ProjectDirectory, agent_id: str, moment: datetime) -> None:
    """Inside the transaction that claims its handoff: the task is in progress, and whose."""
    tasks.follow_handoff(
        task_key=task_key, place=place, status=TaskStatus.IN_PROGRESS, holder=agent_id, actor=agent_id, moment=moment
    )


def completed(task_key: str, place: ProjectDirectory, agent_id: str, moment: datetime) -> None:
    """Inside the transaction that completes its handoff: the task is completed."""
    tasks.follow_handoff(
        task_key=task_key, place=place, status=TaskStatus.COMPLETED, holder=None, actor=agent_id, moment=moment
    )


def returned(task_key: str, place: ProjectDirectory, holder: str | None, actor: str | None, moment: datetime) -> None:
    """Inside the transaction that ends a claim without a result: the task is pending again, unless it was completed
    or another holds it."""
    task = Task.objects.filter(pk=task_key).first()
    if task is None or task.held_by != holder:
        return
    if task.status != TaskStatus.IN_PROGRESS:
        Task.objects.filter(pk=task_key).update(held_by=None)
        return
    tasks.follow_handoff(
        task_key=task_key, place=place, status=TaskStatus.PENDING, holder=None, actor=actor, moment=moment
    )
