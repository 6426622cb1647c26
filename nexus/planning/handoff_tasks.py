"""Functions for handoffs that carry tasks (`handoffs.transitions` calls them)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime

from django.db.models import Q

from coordination.models import ID_LENGTH
from coordination.services.workspaces import ProjectDirectory
from handoffs.models import MAX_TITLE
from handoffs.transitions import FinishedTask
from inbox.monitoring import Picture
from nexus.core.operations.errors import Code, NexusError
from nexus.planning import mirror, monitoring, selectors, submissions
from nexus.planning.models import STREAM as STREAM  # imported by `handoffs.transitions`, too
from nexus.planning.models import Task, TaskStatus


def refresh(project: ProjectDirectory) -> None:
    """Import foreign changes before the transaction of a handoff that carries a task."""
    mirror.import_beside(project)


def find(workspace_id: str, task_id: int) -> str:
    """Return the key of a task of the open cycle. Raises NOT_FOUND."""
    task = selectors.numbered(workspace_id, task_id)
    if task is None:
        raise NexusError(Code.NOT_FOUND, f"Task id {task_id} not found", {"task_id": task_id})
    return task.task_key


def ready(workspace_id: str) -> set[str]:
    """Return the keys of the tasks whose dependencies are met."""
    pending = Task.objects.current(workspace_id).filter(status=TaskStatus.PENDING)
    return {task.pk for task in selectors.ready_among(list(pending.only("workspace_id", "status", "deps")))}


def count_waiting(agents: Collection[str]) -> dict[str, int]:
    """Return how many tasks wait for those that each of these agents works on or submitted, also by way of others."""
    names = ("submitted_by", "held_by", "owner_agent_id", "owner")
    of_them = Q(*((f"{name}__in", agents) for name in names), _connector=Q.OR)
    doing = Task.objects.filter(of_them, closed_at=None, status=TaskStatus.IN_PROGRESS)
    rows = doing.only("workspace_id", "number", *names)
    return selectors.count_waiting({task: str(task.doer) for task in rows if task.doer in agents})


def finished(picture: Picture) -> list[FinishedTask]:
    """Return the submitted tasks that wait for a person and for no review of a worktree, oldest first. Of very many,
    the oldest are examined."""
    found, _ = monitoring.for_person(picture)
    counts = selectors.count_waiting({task: task.pk for task, _ in found})
    return [
        FinishedTask(
            task_key=task.pk,
            number=task.number,
            claim_epoch=task.claim_epoch,
            title=task.title[:MAX_TITLE],
            doer=task.doer[:ID_LENGTH] if task.doer else None,
            why=why,
            project_root=task.workspace.root_realpath,
            since=task.since,
            unblocks=counts[task.pk],
            page="admin:planning_task_change",
        )
        for task, why in found
    ]


def started(task_key: str, project: ProjectDirectory, agent_id: str, moment: datetime) -> None:
    """Begin the task for the agent that claimed its handoff, in that transaction."""
    _follow(task_key, project, agent_id, lambda task: submissions.start(task, agent_id, moment))


def completed(task_key: str, project: ProjectDirectory, agent_id: str, moment: datetime) -> None:
    """Complete the task, or submit its result if that is checked, in the transaction that completes its handoff."""
    _follow(
        task_key,
        project,
        None,
        lambda task: submissions.change_status(task, TaskStatus.COMPLETED, agent_id, moment),
    )


def returned(task_key: str, project: ProjectDirectory, holder: str | None, actor: str | None, moment: datetime) -> None:
    """Mark the task as pending again in the transaction that ends a claim without a result, unless it was completed or
    another agent holds it. What was submitted stays so."""
    task = Task.objects.filter(pk=task_key).first()
    if task is None or task.held_by != holder:
        return
    if task.status != TaskStatus.IN_PROGRESS or task.is_submitted:
        Task.objects.filter(pk=task_key).update(held_by=None)
        return
    _follow(task_key, project, None, lambda task: submissions.change_status(task, TaskStatus.PENDING, actor, moment))


def _follow(task_key: str, project: ProjectDirectory, holder: str | None, step: Callable[[Task], object]) -> None:
    """Set who holds a task and let it take a step. A task of a closed cycle stays as it is."""
    task = Task.objects.filter(pk=task_key, closed_at=None).first()
    if task is None:
        return
    before = task.status
    task.held_by = holder
    task.save(update_fields=["held_by"])
    step(task)
    if task.status != before:
        mirror.follow(project)
