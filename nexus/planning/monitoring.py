"""The reads of the operators' pages of plans. They are bounded however large a plan is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from coordination.models import Workspace
from handoffs import verifiers
from handoffs.dependencies import in_order
from inbox.monitoring import Picture
from nexus.planning import rules, schemas, selectors
from nexus.planning.models import Cycle, Issue, IssueStatus, Task, TaskCheckRun, TaskStatus

READY = "ready"  # pending, and all dependencies are met


@dataclass(frozen=True)
class TaskRow:
    """A task of the open cycle with its relations to the others."""

    task: Task
    state: str  # its status, or ready
    waits_for: list[int] = field(default_factory=list)  # existing dependencies that are not completed
    unknown: list[int] = field(default_factory=list)  # dependencies that do not exist
    stuck: bool = False  # it is in a dependency cycle, or depends on a task in one

    @property
    def label(self) -> str:
        """The state in words."""
        return self.state.replace("_", " ").capitalize()

    @property
    def whose(self) -> str:
        """The agent that holds it, else its owner; empty where there is neither."""
        return self.task.held_by or self.task.owner or ""


def list_projects(limit: int) -> QuerySet[Workspace]:
    """Return the workspaces with a plan, tasks or a history, newest activity first, each with the `topic` of its plan
    and how many issues are `undecided`, tasks `unfinished` and `cycles_closed`."""
    undecided = Issue.objects.filter(plan=OuterRef("pk"), status=IssueStatus.PENDING)
    open_tasks = Task.objects.filter(workspace=OuterRef("pk"), closed_at=None)
    cycles = Cycle.objects.in_history().filter(workspace=OuterRef("pk"))
    planned = Q(plan__isnull=False) | Q(Exists(open_tasks)) | Q(Exists(cycles))
    rows = Workspace.objects.filter(planned).annotate(
        topic=F("plan__topic"),
        undecided=_number(undecided, "plan"),
        unfinished=_number(open_tasks.exclude(status=TaskStatus.COMPLETED), "workspace"),
        cycles_closed=_number(cycles, "workspace"),
    )
    return rows.order_by("-last_seen_at")[:limit]


def _number(rows: QuerySet[Any], by: str) -> Coalesce:
    """Return the number of rows as a column; `by` is the reference by which they are found."""
    return Coalesce(Subquery(rows.order_by().values(by).annotate(number=Count("pk")).values("number")), 0)


def work(workspace_id: str) -> list[TaskRow]:
    """Return the tasks of the open cycle, in their order, with what keeps each from beginning."""
    rows = list(Task.objects.current(workspace_id).only("number", "title", "status", "deps", "owner", "held_by"))
    deps, status = {row.number: row.deps for row in rows}, {row.number: row.status for row in rows}
    free = set(rules.ready(deps, status))
    done = {number for number, each in status.items() if each == TaskStatus.COMPLETED}
    can_begin = set(in_order({row.number: [each for each in row.deps if each not in done] for row in rows}))
    return [
        TaskRow(
            row,
            READY if row.number in free else row.status,
            waits_for=[each for each in dict.fromkeys(row.deps) if each in deps and each not in done],
            unknown=rules.unknown(deps, row.number),
            stuck=row.number not in can_begin,
        )
        for row in rows
    ]


@dataclass(frozen=True)
class Standing:
    """A task with its dependencies and its dependents."""

    work: TaskRow
    needs: list[TaskRow]
    needed_by: list[TaskRow]


def standing(task: Task) -> Standing:
    """Return a task of the open cycle with its dependencies and its dependents."""
    current = Task.objects.current(task.workspace_id)
    needs = _linked(current.filter(number__in=task.deps))
    left = current.exclude(status=TaskStatus.COMPLETED).values_list("number", "deps")
    deps = dict(left) if task.status != TaskStatus.COMPLETED else {}
    there = {row.task.number for row in needs}
    (own,) = _linked(current.filter(pk=task.pk))
    return Standing(
        replace(
            own,
            unknown=[each for each in dict.fromkeys(task.deps) if each not in there],
            stuck=task.number in deps and task.number not in in_order(deps),
        ),
        needs,
        _linked(selectors.dependents(task)),
    )


def for_issue(issue: Issue) -> list[TaskRow]:
    """Return the tasks of the open cycle that belong to an issue."""
    return _linked(Task.objects.current(issue.plan_id).filter(plan_issue=issue.number))


def _linked(rows: QuerySet[Task]) -> list[TaskRow]:
    """Return tasks of an open cycle as a page that links to them shows them."""
    found = list(rows.defer("context", "approach", "acceptance", "risk"))
    free = {task.pk for task in selectors.ready_among(found)}
    return [TaskRow(row, READY if row.pk in free else row.status) for row in found]


def document(cycle: Cycle) -> dict[str, Any]:
    """Return the document of a closed cycle, whatever version its file has."""
    entry: dict[str, Any] = schemas.cycle(cycle.document)
    return entry


def moment_of(stamp: str | None) -> datetime | None:
    """Return the time in a file's text, in UTC; None where it has none."""
    try:
        found = datetime.fromisoformat(stamp or "")
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def for_person(picture: Picture) -> tuple[list[tuple[Task, str]], bool]:
    """Return the submitted tasks that wait for a person, each with the reason, oldest first; and whether there are more
    than were examined. A task whose work waits for review in a worktree is left out."""
    rows = Task.objects.submitted().order_by("submitted_at", "task_key").select_related("workspace")
    rows = rows.filter(workspace=picture.workspace) if picture.workspace else rows
    light = rows.defer("context", "approach", "acceptance", "risk", "extra")
    return verifiers.for_person(TaskCheckRun, "task", light, picture)
