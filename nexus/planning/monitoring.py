"""The reads of the operators' pages of plans. They are bounded however large a plan is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db.models import Count, Q, QuerySet

from coordination.models import Workspace
from handoffs import verifiers
from handoffs.models import Handoff
from handoffs.steps import SubmittedWork, in_review
from inbox.monitoring import Picture
from nexus.planning import rules, schemas, selectors
from nexus.planning.models import Cycle, Issue, IssueStatus, Plan, Task, TaskCheckRun, TaskStatus

LOOKED_AT, CIRCLES = 50, 5  # tasks that are searched for dependency cycles, and cycles that are shown
READY = "ready"  # pending, and all dependencies are met


@dataclass(frozen=True)
class Work:
    """A task with its relations to the others of its cycle."""

    number: int
    title: str
    state: str  # its status, or ready
    waits_for: list[int] = field(default_factory=list)  # existing dependencies that are not completed
    unknown: list[int] = field(default_factory=list)  # dependencies that do not exist
    stuck: bool = False  # it is in a dependency cycle, or depends on a task in one
    critical: bool = False  # on the longest chain of unfinished tasks
    task: Task | None = None  # its row; None in a closed cycle
    entry: Mapping[str, Any] = field(default_factory=dict)  # from a closed cycle
    handoff: Handoff | None = None  # the latest that carries it

    @property
    def label(self) -> str:
        """The state in words."""
        return self.state.replace("_", " ").capitalize()

    @property
    def whose(self) -> str:
        """The agent that holds it, else its owner; empty where there is neither."""
        if self.task is not None:
            return self.task.held_by or self.task.owner or ""
        return str(self.entry.get("owner", ""))


class Counted(NamedTuple):
    """The number of rows, and how many of them are done."""

    total: int
    done: int


@dataclass(frozen=True)
class Listed:
    """A workspace that has or had a plan."""

    workspace: Workspace
    topic: str
    issues: Counted
    tasks: Counted
    cycles: int


def list_projects(limit: int) -> list[Listed]:
    """Return the workspaces with a plan, tasks or a history, newest activity first."""
    tasks = Task.objects.filter(closed_at=None)
    cycles = Cycle.objects.in_history()
    rows = list(
        Workspace.objects.filter(
            Q(pk__in=Plan.objects.values("pk"))
            | Q(pk__in=tasks.values("workspace"))
            | Q(pk__in=cycles.values("workspace"))
        ).order_by("-last_seen_at")[:limit]
    )
    workspaces = [row.pk for row in rows]
    topics = dict(Plan.objects.filter(pk__in=workspaces).values_list("pk", "topic"))
    issues = _counted(Issue.objects.filter(plan__in=workspaces), "plan", status=IssueStatus.DECIDED)
    work = _counted(tasks.filter(workspace__in=workspaces), "workspace", status=TaskStatus.COMPLETED)
    past = _counted(cycles.filter(workspace__in=workspaces), "workspace")
    none = Counted(0, 0)
    return [
        Listed(
            row,
            topics.get(row.pk, ""),
            issues.get(row.pk, none),
            work.get(row.pk, none),
            past.get(row.pk, none).total,
        )
        for row in rows
    ]


def _counted(rows: QuerySet[Any], by: str, **done: str) -> dict[str, Counted]:
    """Count rows by workspace, and how many of them are done."""
    counted = rows.values_list(by).annotate(total=Count("pk"), done=Count("pk", filter=Q(**done))).order_by()
    return {workspace_id: Counted(total, many) for workspace_id, total, many in counted}


def work(workspace_id: str) -> list[Work]:
    """Return the tasks of the open cycle, in their order, with their dependencies and handoffs."""
    shown = ("number", "title", "status", "deps", "owner", "held_by", "task_key")
    rows = list(Task.objects.current(workspace_id).only(*shown))
    carrying = Handoff.objects.filter(task_key__in=Task.objects.current(workspace_id).order_by().values("task_key"))
    handoffs = {row.task_key: row for row in carrying.defer("payload", "result").order_by("created_event_id")}
    return _related(
        {row.number: row.deps for row in rows},
        {row.number: row.status for row in rows},
        [(row.number, {"title": row.title, "task": row, "handoff": handoffs.get(row.task_key)}) for row in rows],
    )


def past_work(entries: Sequence[Mapping[str, Any]]) -> list[Work]:
    """Return the same for the tasks of a closed cycle."""
    return _related(
        {entry["id"]: entry["deps"] for entry in entries},
        {entry["id"]: entry["status"] for entry in entries},
        [(entry["id"], {"title": entry["title"], "entry": entry}) for entry in entries],
    )


def _related(deps: rules.Deps, status: Mapping[int, str], rows: Iterable[tuple[int, Mapping[str, Any]]]) -> list[Work]:
    """Return the tasks of a cycle with their relations; `rows` has each task's number and its own data."""
    free = set(rules.ready(deps, status))
    done = {number for number, each in status.items() if each == TaskStatus.COMPLETED}
    left = {number: [each for each in needed if each not in done] for number, needed in deps.items()}
    orderly, critical = rules.layers(left), set(rules.critical_path(deps, done))
    return [
        Work(
            number,
            state=READY if number in free else status[number],
            waits_for=[each for each in dict.fromkeys(deps[number]) if status.get(each) not in (None, "completed")],
            unknown=rules.unknown(deps, number),
            stuck=number not in orderly,
            critical=number in critical,
            **row,
        )
        for number, row in rows
    ]


def circles(every: Sequence[Work], deps: rules.Deps) -> list[list[int]]:
    """Return the first few dependency cycles."""
    found: list[list[int]] = []
    for row in [row for row in every if row.stuck][:LOOKED_AT]:
        way = rules.cycle_of(deps, row.number)
        if way and not any(row.number in other for other in found):
            found.append(way)
    return found[:CIRCLES]


@dataclass(frozen=True)
class Standing:
    """A task with its dependencies and its dependents."""

    work: Work
    needs: list[Work]
    needed_by: list[Work]


def standing(task: Task) -> Standing:
    """Return a task of the open cycle with its dependencies and its dependents."""
    current = Task.objects.current(task.workspace_id)
    needs = _linked(current.filter(number__in=task.deps))
    left = current.exclude(status=TaskStatus.COMPLETED).values_list("number", "deps")
    deps = dict(left) if task.status != TaskStatus.COMPLETED else {}
    there = {row.number for row in needs}
    (own,) = _linked(current.filter(pk=task.pk))
    return Standing(
        replace(
            own,
            unknown=[each for each in dict.fromkeys(task.deps) if each not in there],
            stuck=task.number in deps and task.number not in rules.layers(deps),
            critical=task.number in rules.critical_path(deps),
        ),
        needs,
        _linked(selectors.dependents(task)),
    )


def for_issue(issue: Issue) -> list[Work]:
    """Return the tasks of the open cycle that belong to an issue."""
    return _linked(Task.objects.current(issue.plan_id).filter(plan_issue=issue.number))


def _linked(rows: QuerySet[Task]) -> list[Work]:
    """Return tasks of an open cycle as a page that links to them shows them."""
    found = list(rows.defer("context", "approach", "acceptance", "risk"))
    free = {task.pk for task in selectors.ready_among(found)}
    return [Work(row.number, row.title, READY if row.pk in free else row.status, task=row) for row in found]


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
    found, or_more = verifiers.for_person(TaskCheckRun, "task", light, picture)
    works = [SubmittedWork(task.doer, task.workspace.root_realpath, task.since) for task, _ in found]
    return [each for each, reviewed in zip(found, in_review(works), strict=True) if not reviewed], or_more
