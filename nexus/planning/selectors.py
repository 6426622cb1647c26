"""The reads of planning."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from math import inf
from operator import itemgetter, or_
from typing import Any, NamedTuple

from django.db.models import Count, Q, QuerySet, TextField
from django.db.models.functions import Cast

from coordination.debts import Debt
from coordination.models import Agent
from handoffs.dependencies import count_waiting as count_pending
from handoffs.verification import MOST_DEBTS, owed_verdicts
from nexus.core.operations.errors import NexusError
from nexus.core.operations.validation import unstorable
from nexus.planning import rules, schemas
from nexus.planning.directory import ARTIFACTS, DECISIONS, Directory
from nexus.planning.models import Board, Cycle, Task, TaskCheckRun, TaskStatus
from nexus.planning.schemas import PlanDocument, TasksDocument

AT_ONCE = 500  # numbers in one query


class Progress(NamedTuple):
    """The numbers of a cycle's tasks by state."""

    total: int
    completed: int
    pending: int
    in_progress: int
    ready: list[int]


def progress(tasks: TasksDocument) -> Progress:
    """Count the tasks by state; `pending` includes those that are ready."""
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


def numbered(workspace_id: str, number: int) -> Task | None:
    """Return the task of the open cycle with this number."""
    return Task.objects.current(workspace_id).filter(number=number).first() if number > 0 else None


def has_agent(names: Collection[str]) -> bool:
    """Return whether one of these names is an agent's id or role."""
    return Agent.objects.filter(Q(pk__in=names) | Q(role__in=names)).exists()


def dependencies(workspace_id: str) -> tuple[dict[int, list[int]], dict[int, str]]:
    """Return the dependencies of each task of the open cycle, and its status."""
    rows = list(Task.objects.current(workspace_id).values_list("number", "deps", "status"))
    return {row[0]: row[1] for row in rows}, {row[0]: row[2] for row in rows}


def count_waiting(named: Mapping[Task, str]) -> Counter[str]:
    """Return, by the names that some tasks of open cycles have, how many pending tasks wait for them, also by way of
    others."""
    names: dict[str, dict[int, str]] = defaultdict(dict)
    for task, name in named.items():
        names[task.workspace_id][task.number] = name
    pending: dict[str, dict[int, list[int]]] = defaultdict(dict)
    rows = Task.objects.filter(workspace__in=names, closed_at=None, status=TaskStatus.PENDING).order_by()
    for workspace_id, number, deps in rows.values_list("workspace_id", "number", "deps") if names else ():
        pending[workspace_id][number] = deps
    found = Counter[str]()
    for workspace_id, plan in pending.items():
        found.update(count_pending(plan, names[workspace_id]))
    return found


def dependents(task: Task) -> QuerySet[Task]:
    """Return the tasks of the same cycle that depend on a task, in their order."""
    written = Cast("deps", TextField())  # JSON's brackets and commas delimit each number
    named = [f"{before}{task.number}{after}" for before in "[ ," for after in ",]"]
    here = Task.objects.current(task.workspace_id).annotate(written=written)
    return here.filter(reduce(or_, [Q(written__contains=each) for each in named]))


def waiting_for(task: Task) -> list[Task]:
    """Return the pending tasks that depend on a task."""
    return list(dependents(task).filter(status=TaskStatus.PENDING))


def ready_among(tasks: Collection[Task]) -> list[Task]:
    """Return those of some tasks of one cycle that can begin."""
    needed = {number for task in tasks if task.status == TaskStatus.PENDING for number in task.deps}
    done: set[int] = set()
    if needed:
        rows = Task.objects.current(next(iter(tasks)).workspace_id).filter(status=TaskStatus.COMPLETED).order_by()
        few = rows if len(needed) > AT_ONCE else rows.filter(number__in=needed)
        done = set(few.values_list("number", flat=True))
    return [task for task in tasks if task.status == TaskStatus.PENDING and done.issuperset(task.deps)]


def held_or_checked(workspace_id: str) -> list[Task]:
    """Return the tasks of the open cycle that an agent holds by a handoff, and those whose results are checked."""
    named = Q(held_by__isnull=False) | Q(acceptance_criteria__isnull=False) | Q(verifier__isnull=False)
    return list(Task.objects.current(workspace_id).filter(named))


def cycles(workspace_id: str, query: str | None) -> QuerySet[Cycle]:
    """Return the cycles in history.json, oldest first; with a query, those that contain it anywhere, without regard to
    case."""
    found = Cycle.objects.in_history().filter(workspace_id=workspace_id).order_by("position", "pk")
    return found.filter(words__contains=query.lower()) if query else found


class Snapshot(NamedTuple):
    """A summary of a cycle's tasks; there is none where their file is missing or malformed."""

    goal: str
    decisions: list[str]
    statuses: Mapping[str, int]  # tasks by status


def snapshot(workspace_id: str) -> Snapshot | None:
    """Return the summary from the rows, which match the file once that was imported."""
    board = Board.objects.filter(pk=workspace_id).first()
    if board is None:
        return None
    counted = Task.objects.current(workspace_id).order_by().values_list("status").annotate(count=Count("pk"))
    return Snapshot(board.goal, board.decisions, dict(counted))


def snapshot_of_file(root: str) -> Snapshot | None:
    """Return the summary from the file on disk. Raises STATE_UNAVAILABLE."""
    with Directory(root) as directory:
        content = directory.read(schemas.TASKS.path)
    try:
        tasks = None if content is None else schemas.TASKS.parse(content)
    except NexusError:
        return None
    if tasks is None:
        return None
    return Snapshot(tasks["goal"], tasks["decisions"], Counter(str(task["status"]) for task in tasks["tasks"]))


def decided(root: str) -> list[Any] | None:
    """Return the decisions that a consumer wrote into its own file; None where that is missing or malformed.

    Raises STATE_UNAVAILABLE.
    """
    with Directory(root) as directory:
        return _decisions_in(directory.read(DECISIONS))


def _decisions_in(content: bytes | None) -> list[Any] | None:
    """Return the list of decisions in a file, at the top or below `decisions`; None where there is none."""
    try:
        document = json.loads(content or b"null")
    except (ValueError, RecursionError):
        return None
    found = document.get("decisions") if isinstance(document, dict) else document
    usable = isinstance(found, list) and not unstorable({"": found}, lambda _: inf)
    return found if usable else None


def last_analysis(plan: PlanDocument, role: str) -> tuple[int, str | None] | None:
    """Return the issue that a role analysed last, and the agent that did it where that is recorded."""
    found: list[tuple[str, int, str | None]] = []
    for issue in plan["issues"]:
        for entry in schemas.analyses(issue.get("extra")):
            if isinstance(entry, dict) and entry.get("role") == role and isinstance(entry.get("recorded_at"), str):
                agent = entry.get("agent_id")
                found.append((entry["recorded_at"], issue["id"], agent if isinstance(agent, str) else None))
    return max(found, key=itemgetter(0))[1:] if found else None


class Artifact(NamedTuple):
    """A file of the cycle's artifacts."""

    filename: str
    size: int
    modified_at: datetime


def artifacts(root: str, prefix: str | None) -> list[Artifact]:
    """Return the artifacts whose names begin with `prefix`. Raises STATE_UNAVAILABLE."""
    with Directory(root) as directory:
        return [
            Artifact(name, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))
            for name, status in directory.files(ARTIFACTS)
            if name.startswith(prefix or "") and name.isprintable()
        ]


def task_debts(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """Yield a debt for each task in progress whose owner is one of the agents: the instance where one is named. What
    was submitted is left out: it waits for others."""
    rows = Task.objects.on_their_own(TaskStatus.IN_PROGRESS).filter(submitted_at=None)
    if agents is not None:
        rows = rows.owned_by(agents)
    for task in rows.order_by("task_key")[:MOST_DEBTS]:
        owner = task.owner_agent_id if task.owner_agent_id is not None else task.owner
        if owner is not None:
            to = task.created_by if task.created_by != owner else None
            yield Debt(owner, "task", task.task_key, task.title, to, task.updated_at, task.workspace_id)


def verdicts(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """Return a debt for each submitted task that one agent alone must verify, once its checks passed."""
    rows = Task.objects.submitted().exclude(TaskCheckRun.unpassed("task")).order_by("task_key")
    return owed_verdicts("task_verdict", rows, agents, "created_by")
