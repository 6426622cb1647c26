"""Functions for handoffs that carry tasks (`handoffs.steps` calls them)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db.models import Q

from coordination.services.workspaces import ProjectDirectory
from nexus.planning import mirror, rules, selectors
from nexus.planning.models import STREAM as STREAM  # imported by `handoffs.steps`, too
from nexus.planning.models import Task, TaskStatus
from nexus.planning.services import tasks


def refresh(project: ProjectDirectory) -> None:
    """Import foreign changes before the transaction of a handoff that carries a task."""
    mirror.import_beside(project)


def find(workspace_id: str, task_id: int) -> str:
    """Return the key of a task of the open cycle. Raises NOT_FOUND."""
    return tasks.find(workspace_id=workspace_id, number=task_id).task_key


def ready(workspace_id: str) -> set[str]:
    """Return the keys of the tasks whose dependencies are met."""
    pending = Task.objects.current(workspace_id).filter(status=TaskStatus.PENDING)
    return {task.pk for task in selectors.ready_among(list(pending.only("workspace_id", "status", "deps")))}


def count_waiting(agents: Collection[str]) -> dict[str, int]:
    """Return how many tasks wait for those that each of these agents works on or submitted, also by way of others."""
    names = ("submitted_by", "held_by", "owner_agent_id", "owner")
    of_them = Q(*((f"{name}__in", agents) for name in names), _connector=Q.OR)
    doing = Task.objects.filter(of_them, closed_at=None, status=TaskStatus.IN_PROGRESS)
    doing = doing.only("workspace_id", "number", *names)
    plans = {workspace: selectors.dependencies(workspace) for workspace in {task.workspace_id for task in doing}}
    dependents = {workspace: rules.dependents(deps) for workspace, (deps, _) in plans.items()}
    waiting: dict[str, set[tuple[str, int]]] = {}
    for task in doing:
        if task.doer in agents:
            status = plans[task.workspace_id][1]
            later = rules.after(dependents[task.workspace_id], task.number)
            unfinished = (each for each in later if status[each] != TaskStatus.COMPLETED)
            waiting.setdefault(str(task.doer), set()).update((task.workspace_id, each) for each in unfinished)
    return {agent: len(tasks) for agent, tasks in waiting.items()}


def started(task_key: str, project: ProjectDirectory, agent_id: str, moment: datetime) -> None:
    """Mark the task as in progress, with its agent, in the transaction that claims its handoff."""
    tasks.follow_handoff(
        task_key=task_key,
        project=project,
        status=TaskStatus.IN_PROGRESS,
        holder=agent_id,
        actor=agent_id,
        moment=moment,
    )


def completed(task_key: str, project: ProjectDirectory, agent_id: str, moment: datetime) -> None:
    """Mark the task as completed in the transaction that completes its handoff."""
    tasks.follow_handoff(
        task_key=task_key, project=project, status=TaskStatus.COMPLETED, holder=None, actor=agent_id, moment=moment
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
    tasks.follow_handoff(
        task_key=task_key, project=project, status=TaskStatus.PENDING, holder=None, actor=actor, moment=moment
    )
