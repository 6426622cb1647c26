"""Operations on tasks and their dependencies."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from coordination.services import workspaces
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.planning import documents, mirror, selectors
from nexus.planning.operations.common import CHANGING, READING, OfProject, actor
from nexus.planning.schemas import CycleEntry, Reference, TaskEntry
from nexus.planning.services import cycles, tasks
from nexus.planning.services.tasks import NewTask
from nexus.planning.toolset import operation

Text = Annotated[str, Field(min_length=1)]
MOST_DEPS = 1_000


class TaskAdd(OfProject):
    title: Text
    context: Text
    deps: Annotated[list[Reference], Field(max_length=MOST_DEPS, description="Tasks to be completed first.")] = []
    approach: str | None = None
    acceptance: Annotated[str | None, Field(description="When it is done.")] = None
    risk: str | None = None
    plan_issue: Annotated[Reference | None, Field(description="The plan's issue that it comes from.")] = None
    goal: Annotated[str | None, Field(description="A new goal for all tasks of the cycle.")] = None
    decisions: Annotated[
        list[str] | None, Field(max_length=1_000, description="Decisions to add to the decisions of the cycle.")
    ] = None
    owner: Annotated[str | None, Field(description="The role that does it, such as engineer.")] = None
    owner_agent_id: str | None = None
    owner_reuse_policy: Literal["fresh", "resume_if_same_artifact", "resume"] | None = None


class AddedTask(TypedDict):
    task: TaskEntry
    warnings: NotRequired[list[str]]


@operation(TaskAdd, *CHANGING, slow=True, own_transaction=True)
def task_add(p: TaskAdd, caller: Caller) -> AddedTask:
    """Add a task."""
    new = NewTask(**{name: getattr(p, name) for name in NewTask._fields})
    task, warnings = tasks.add(
        project_root=p.project_root, new=new, goal=p.goal, decisions=p.decisions, by=actor(caller, "task_add")
    )
    added: AddedTask = {"task": documents.task_entry(task)}
    if warnings:
        added["warnings"] = warnings
    return added


class HeldTask(TaskEntry):
    held_by: NotRequired[Annotated[str, Field(description="Who claimed the handoff that carries it.")]]


class TaskSummary(TypedDict):
    total: int
    completed: int
    pending: int
    blocked: Annotated[int, Field(description="In progress.")]
    ready: list[int]


class TaskPage(TypedDict):
    exists: NotRequired[bool]
    goal: NotRequired[str]
    tasks: NotRequired[list[HeldTask]]
    summary: NotRequired[TaskSummary]


@operation(OfProject, *READING, slow=True, read_only=True)
def task_list(p: OfProject, caller: Caller) -> TaskPage:
    """The tasks of the cycle; `summary.ready` can be begun now."""
    project = workspaces.locate(p.project_root)
    mirror.take_in(project)
    tasks = documents.tasks_document(project.workspace_id)
    if tasks is None:
        return {"exists": False}
    held = selectors.holders(project.workspace_id)
    found = [cast(HeldTask, {**task}) for task in tasks["tasks"]]
    for task in found:
        if task["id"] in held:
            task["held_by"] = held[task["id"]]
    counted = selectors.progress(tasks)
    return {
        "goal": tasks["goal"],
        "tasks": found,
        "summary": {
            "total": counted.total,
            "completed": counted.completed,
            "pending": counted.pending,
            "blocked": counted.in_progress,
            "ready": counted.ready,
        },
    }


class TaskUpdate(OfProject):
    id: Reference
    status: Literal["pending", "in_progress", "completed"]


class UpdatedTask(TypedDict):
    task: TaskEntry


@operation(TaskUpdate, *CHANGING, Code.NOT_FOUND, slow=True, own_transaction=True)
def task_update(p: TaskUpdate, caller: Caller) -> UpdatedTask:
    """Give a task another status."""
    task = tasks.change_status(
        project_root=p.project_root, number=p.id, status=p.status, by=actor(caller, "task_update")
    )
    return {"task": documents.task_entry(task)}


class Archived(TypedDict):
    plan: bool
    decisions: int
    tasks: int


class MemoryHint(TypedDict):
    taskCount: int
    decisionCount: int
    hadLoopDetection: bool
    cycleTopics: list[str]


class ClosedCycle(TypedDict):
    closed: bool
    cycle: str
    branch: str
    archived: Archived
    deleted: list[str]
    total_cycles: int
    memoryHint: MemoryHint


@operation(OfProject, *CHANGING, slow=True, own_transaction=True, destructive=True)
def task_close(p: OfProject, caller: Caller) -> ClosedCycle:
    """Archive plan and tasks, and begin anew."""
    closed = cycles.close(project_root=p.project_root, by=actor(caller, "task_close"))
    return _closed_cycle(closed.entry, closed)


def _closed_cycle(cycle: CycleEntry, closed: cycles.Closed) -> ClosedCycle:
    plan, tasks = cycle["plan"], cycle["tasks"]
    decisions = sum(issue["status"] == "decided" for issue in plan["issues"]) if plan else 0
    return {
        "closed": True,
        "cycle": cycle["completed_at"],
        "branch": cycle["branch"],
        "archived": {"plan": plan is not None, "decisions": decisions, "tasks": len(tasks)},
        "deleted": closed.deleted,
        "total_cycles": closed.total,
        "memoryHint": {
            "taskCount": len(tasks),
            "decisionCount": decisions,
            "hadLoopDetection": closed.looped,
            "cycleTopics": [topic for topic in (plan["topic"] if plan else "", closed.goal) if topic],
        },
    }
