"""This app's section of shared.md: the plan, and the unfinished tasks."""

from __future__ import annotations

from coordination.shared_md import one_line, section
from nexus.planning import selectors
from nexus.planning.models import Issue, Plan, Task, TaskStatus


@section(2, "Open tasks")
def _tasks(workspace_id: str, limit_events: int) -> list[str]:
    lines = []
    if plan := Plan.objects.filter(pk=workspace_id).first():
        lines.append(f"Plan {plan.number}: {one_line(plan.topic)}\n")
        issues = Issue.objects.filter(plan=plan).order_by("position", "number")
        lines += [f"- {one_line(issue.title)}: {one_line(issue.decision or 'to be decided')}" for issue in issues]
        lines.append("")
    rows = Task.objects.current(workspace_id).exclude(status=TaskStatus.COMPLETED)
    tasks = list(rows.only("workspace_id", "number", "title", "status", "deps", "held_by", "owner"))
    free = {task.number for task in selectors.ready_among(tasks)}
    for task in tasks:
        state = "ready" if task.number in free else task.status
        whose = one_line(task.held_by or task.owner) if task.held_by or task.owner else "nobody"
        lines.append(f"- {task.number}. {one_line(task.title)} ({state}, {whose})")
    return lines
