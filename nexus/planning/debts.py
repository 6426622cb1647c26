"""Debts: tasks that agents have in progress. A task with a handoff is a debt of the handoff."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from coordination.debts import Debt
from nexus.planning.models import Task, TaskStatus

MOST = 1_000


def owed(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """Yield a debt for each task in progress whose owner is one of the agents: the instance where one is named."""
    rows = Task.objects.on_their_own(TaskStatus.IN_PROGRESS)
    if agents is not None:
        rows = rows.owned_by(agents)
    for task in rows.order_by("task_key")[:MOST]:
        owner = task.owner_agent_id if task.owner_agent_id is not None else task.owner
        if owner is not None:
            to = task.created_by if task.created_by != owner else None
            yield Debt(owner, "task", task.task_key, task.title, to, task.updated_at, task.workspace_id)
