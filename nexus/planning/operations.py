"""The operations of planning: plans and their issues, tasks, earlier cycles, and whether a task's agent is resumed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.parameters import IN_WORKSPACE, ClaimEpoch, ProjectRoot, SessionId, SessionSecret, in_session
from coordination.services import workspaces
from handoffs import check_runs, lifecycle
from handoffs.check_runs import Checked
from handoffs.parameters import Criteria, Verifier
from nexus.core.clock import iso
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import Id, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.planning import documents, edits, mirror, schemas, selectors, state
from nexus.planning.directory import EDITS, Directory, PlanningCode, branch_of
from nexus.planning.models import Cycle, Task, TaskStatus
from nexus.planning.schemas import MOST_ISSUES, CycleEntry, IssueEntry, Reference, TaskEntry
from nexus.planning.services import cycles, plans, tasks, verdicts
from nexus.planning.services.changes import Actor
from nexus.planning.services.tasks import NewTask
from nexus.planning.state import task_of
from nexus.planning.toolset import operation

READING = (
    *IN_WORKSPACE,
    PlanningCode.STATE_FILE_INVALID,
    PlanningCode.STATE_UNAVAILABLE,
    PlanningCode.STATE_BUSY,
)
CHANGING = (*READING, Code.CONTENT_TOO_LARGE)


class OfProject(Params):
    project_root: ProjectRoot


def actor(caller: Caller, operation: str, **ids: str) -> Actor:
    """Return who acts. An operator's act is recorded in the transaction that does it."""
    recorded = partial(domain().acting, caller.operator, operation, **ids)
    return Actor(caller.agent_id, recorded, operator=caller.operator is not None)


Text = Annotated[str, Field(min_length=1)]


class PlanStart(OfProject):
    topic: Text
    issues: Annotated[list[Text], Field(max_length=MOST_ISSUES, description="To be decided, in order.")]
    research_summary: Annotated[str, Field(description="What is known already.")]


class StartedPlan(TypedDict):
    created: bool
    plan_id: int
    topic: str
    issueCount: int
    previousArchived: bool


@operation(PlanStart, *CHANGING, slow=True, own_transaction=True)
def plan_start(p: PlanStart, caller: Caller) -> StartedPlan:
    """Start a plan. An active one moves to the history."""
    plan, archived = plans.start(
        project_root=p.project_root,
        topic=p.topic,
        issues=p.issues,
        research_summary=p.research_summary,
        by=actor(caller, "plan_start"),
    )
    return {
        "created": True,
        "plan_id": plan.number,
        "topic": plan.topic,
        "issueCount": len(p.issues),
        "previousArchived": archived,
    }


class PlanSummary(TypedDict):
    total: int
    pending: int
    decided: int


class PlanState(TypedDict):
    active: bool
    plan_id: NotRequired[int]
    topic: NotRequired[str]
    issues: NotRequired[list[IssueEntry]]
    research_summary: NotRequired[str]
    summary: NotRequired[PlanSummary]


@operation(OfProject, *READING, slow=True, read_only=True)
def plan_status(p: OfProject, caller: Caller) -> PlanState:
    """The active plan, its issues and their decisions."""
    project = workspaces.locate(p.project_root)
    mirror.import_changes(project)
    plan = documents.plan_document(project.workspace_id)
    if plan is None:
        return {"active": False}
    decided = sum(issue["status"] == "decided" for issue in plan["issues"])
    state: PlanState = {"active": True, "plan_id": plan["id"], "topic": plan["topic"], "issues": plan["issues"]}
    if "research_summary" in plan:
        state["research_summary"] = plan["research_summary"]
    state["summary"] = {"total": len(plan["issues"]), "pending": len(plan["issues"]) - decided, "decided": decided}
    return state


class PlanUpdate(OfProject):
    action: Annotated[str, Field(description="add, remove, edit or reopen.")]
    issue_id: Reference | None = None
    title: str | None = None


class UpdatedPlan(TypedDict):
    added: NotRequired[bool]
    removed: NotRequired[bool]
    edited: NotRequired[bool]
    reopened: NotRequired[bool]
    issue: IssueEntry


DONE = {"add": "added", "remove": "removed", "edit": "edited", "reopen": "reopened"}


@operation(PlanUpdate, *CHANGING, Code.NOT_FOUND, slow=True, own_transaction=True)
def plan_update(p: PlanUpdate, caller: Caller) -> UpdatedPlan:
    """Add (title), remove, edit (title) or reopen an issue; reopening drops its decision."""
    issue = plans.update(
        project_root=p.project_root,
        action=p.action,
        issue_id=p.issue_id,
        title=p.title,
        by=actor(caller, "plan_update"),
    )
    done: Any = {DONE[p.action]: True, "issue": documents.issue_entry(issue)}
    updated: UpdatedPlan = done
    return updated


class PlanDecide(OfProject):
    issue_id: Reference
    summary: Annotated[str, Field(description="The decision and its reasons.")]
    how_agents: Annotated[list[str] | None, Field(max_length=100, description="Who was asked.")] = None
    how_summary: Annotated[dict[str, str] | None, Field(max_length=100, description="By agent, what it said.")] = None
    how_agent_ids: Annotated[dict[str, str] | None, Field(max_length=100, description="By agent, its instance.")] = None


class OpenIssue(TypedDict):
    id: int
    title: str
    status: str


class DecidedIssue(TypedDict):
    decided: bool
    issue: str
    allComplete: bool
    message: NotRequired[str]
    remaining: NotRequired[list[OpenIssue]]


@operation(PlanDecide, *CHANGING, Code.NOT_FOUND, slow=True, own_transaction=True)
def plan_decide(p: PlanDecide, caller: Caller) -> DecidedIssue:
    """Decide an issue, or change its decision."""
    issue, left = plans.decide(
        project_root=p.project_root,
        issue_id=p.issue_id,
        summary=p.summary,
        how_agents=p.how_agents,
        how_summary=p.how_summary,
        how_agent_ids=p.how_agent_ids,
        by=actor(caller, "plan_decide"),
    )
    decided: DecidedIssue = {"decided": True, "issue": issue.title, "allComplete": not left}
    if left:
        decided["remaining"] = [{"id": each.number, "title": each.title, "status": each.status} for each in left]
    else:
        decided["message"] = "Every issue is decided. Make tasks of the decisions with task_add."
    return decided


MOST_DEPS = 1_000


class TaskAdd(OfProject):
    title: Text
    context: Text
    deps: Annotated[list[Reference], Field(max_length=MOST_DEPS, description="Tasks to be completed first.")] = []
    approach: str | None = None
    acceptance: Annotated[str | None, Field(description="What must hold when it is done.")] = None
    risk: str | None = None
    plan_issue: Annotated[Reference | None, Field(description="The plan's issue that it comes from.")] = None
    goal: Annotated[str | None, Field(description="A new goal for all tasks of the cycle.")] = None
    decisions: Annotated[
        list[str] | None, Field(max_length=1_000, description="Decisions to add to the decisions of the cycle.")
    ] = None
    owner: Annotated[str | None, Field(description="The role that does it, such as engineer.")] = None
    owner_agent_id: str | None = None
    owner_reuse_policy: Literal["fresh", "resume_if_same_artifact", "resume"] | None = None
    acceptance_criteria: Criteria = None
    verifier: Verifier = None


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
    acceptance_criteria: NotRequired[list[str]]
    verifier: NotRequired[Annotated[Any, Field(description="Who accepts the result, as task_add takes it.")]]
    submitted_at: NotRequired[Annotated[Time, Field(description="Since then its checks or its verifier decide.")]]


class TaskSummary(TypedDict):
    total: int
    completed: int
    pending: int
    blocked: Annotated[int, Field(description="How many are in progress.")]
    ready: list[int]


class TaskPage(TypedDict):
    exists: NotRequired[bool]
    goal: NotRequired[str]
    tasks: NotRequired[list[HeldTask]]
    summary: NotRequired[TaskSummary]


@operation(OfProject, *READING, slow=True, read_only=True)
def task_list(p: OfProject, caller: Caller) -> TaskPage:
    """The tasks of the cycle; those in `summary.ready` can be started now."""
    project = workspaces.locate(p.project_root)
    mirror.import_changes(project)
    tasks = documents.tasks_document(project.workspace_id)
    if tasks is None:
        return {"exists": False}
    held = {task.number: task for task in selectors.held_or_checked(project.workspace_id)}
    found = [cast(HeldTask, {**task, **_beside_file(held.get(task["id"]))}) for task in tasks["tasks"]]
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


def _beside_file(task: Task | None) -> dict[str, Any]:
    """Return what the store alone has of a task."""
    if task is None:
        return {}
    fields = {
        "held_by": task.held_by,
        "acceptance_criteria": task.acceptance_criteria,
        "verifier": lifecycle.serialize_verifier(task.verifier),
        "submitted_at": iso(task.submitted_at) if task.is_submitted else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


class TaskRef(OfProject):
    id: Reference


class TaskState(Checked):
    task: HeldTask
    claim_epoch: Annotated[int, Field(description="Names the latest claim; a verdict on a former one is refused.")]


@operation(TaskRef, *READING, Code.NOT_FOUND, slow=True, read_only=True)
def task_get(p: TaskRef, caller: Caller) -> TaskState:
    """A task of the cycle, with the checks of its results."""
    project = workspaces.locate(p.project_root)
    mirror.import_changes(project)
    task = tasks.get(project, p.id)
    return {
        "task": cast(HeldTask, {**documents.task_entry(task), **_beside_file(task)}),
        "claim_epoch": task.claim_epoch,
        **check_runs.of_results(task.check_runs.all()),
    }


class TaskUpdate(OfProject):
    id: Reference
    status: Literal["pending", "in_progress", "completed"]
    claim_epoch: ClaimEpoch = None


class UpdatedTask(TypedDict):
    task: TaskEntry
    submitted: NotRequired[Annotated[bool, Field(description="Its checks or its verifier decide: see task_get.")]]
    claim_epoch: NotRequired[Annotated[int, Field(description="Names your claim on a task that you began.")]]


@operation(TaskUpdate, *CHANGING, Code.NOT_FOUND, CoordinationCode.STALE_CLAIM, slow=True, own_transaction=True)
def task_update(p: TaskUpdate, caller: Caller) -> UpdatedTask:
    """Give a task another status. What is checked stays in progress until it passed; pending or in_progress takes it
    back."""
    task = tasks.change_status(
        project_root=p.project_root,
        number=p.id,
        status=p.status,
        by=actor(caller, "task_update"),
        claim_epoch=p.claim_epoch,
    )
    return _updated(task)


def _updated(task: Task) -> UpdatedTask:
    updated: UpdatedTask = {"task": documents.task_entry(task)}
    if task.is_submitted:
        updated["submitted"] = True
    if task.status == TaskStatus.IN_PROGRESS:
        updated["claim_epoch"] = task.claim_epoch
    return updated


JUDGING = (*CHANGING, Code.NOT_FOUND, Code.INVALID_TRANSITION, Code.NOT_OWNER, CoordinationCode.STALE_CLAIM)
Reasons = Annotated[str, Field(description="What is wrong with the result.")]


class TaskReview(TaskRef):
    agent_id: Annotated[Id, Field(description="You, its verifier.")]
    verdict: Literal["accept", "return"]
    reasons: Annotated[str, Field(description="What is wrong with it; to return it.")] = ""
    claim_epoch: ClaimEpoch = None
    session_id: SessionId = None
    session_secret: SessionSecret = None


@operation(
    TaskReview, *JUDGING, acts_as="agent_id", requires=(in_session("session_id"),), slow=True, own_transaction=True
)
def task_review(p: TaskReview, caller: Caller) -> UpdatedTask:
    """Accept a submitted task as its verifier, which completes it, or return it."""
    by = replace(actor(caller, "task_review"), name=p.agent_id)
    about: Any = {"project_root": p.project_root, "number": p.id, "by": by, "claim_epoch": p.claim_epoch}
    if p.verdict == "accept":
        return _updated(verdicts.accept(**about, operator=None))
    return _updated(verdicts.send_back(**about, operator=None, reasons=p.reasons))


class TaskApprove(TaskRef):
    claim_epoch: ClaimEpoch = None


@operation(TaskApprove, *JUDGING, requires=(OPERATORS_ONLY,), tool=False, slow=True, own_transaction=True)
def task_approve(p: TaskApprove, caller: Caller) -> UpdatedTask:
    """Accept a submitted task as an operator, whoever its verifier is and whatever its checks said."""
    task = verdicts.accept(
        project_root=p.project_root,
        number=p.id,
        by=actor(caller, "task_approve"),
        operator=operator_behind(caller),
        claim_epoch=p.claim_epoch,
    )
    return _updated(task)


class TaskSendBack(TaskApprove):
    reasons: Reasons


@operation(TaskSendBack, *JUDGING, requires=(OPERATORS_ONLY,), tool=False, slow=True, own_transaction=True)
def task_send_back(p: TaskSendBack, caller: Caller) -> UpdatedTask:
    """Return a submitted task to the agent that did it, as an operator."""
    task = verdicts.send_back(
        project_root=p.project_root,
        number=p.id,
        reasons=p.reasons,
        by=actor(caller, "task_send_back"),
        operator=operator_behind(caller),
        claim_epoch=p.claim_epoch,
    )
    return _updated(task)


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
    """Close the cycle: archive plan and tasks, and start empty."""
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


MOST_CYCLES = 1_000


class HistorySearch(OfProject):
    query: Annotated[str | None, Field(max_length=1_000)] = None
    last_n: Annotated[int, Field(ge=1, le=MOST_CYCLES)] = 10


class IssueDecision(TypedDict):
    title: str
    decision: str


class FoundCycle(TypedDict):
    completed_at: str
    branch: str
    topic: NotRequired[str]
    decisions: NotRequired[list[IssueDecision]]
    task_count: NotRequired[int]


class FoundCycles(TypedDict):
    total: int
    showing: int
    cycles: list[FoundCycle]


@operation(HistorySearch, *READING, slow=True, read_only=True)
def history_search(p: HistorySearch, caller: Caller) -> FoundCycles:
    """The latest cycles that contain the query, with their decisions."""
    project = workspaces.locate(p.project_root)
    mirror.import_changes(project)
    found = list(selectors.cycles(project.workspace_id, p.query).values_list("pk", flat=True))  # reads all texts once
    documents = dict(Cycle.objects.filter(pk__in=found[-p.last_n :]).values_list("pk", "document"))
    shown = [documents[key] for key in found[-p.last_n :] if key in documents]
    return {"total": len(found), "showing": len(shown), "cycles": [_row(schemas.cycle(each)) for each in shown]}


def _row(cycle: CycleEntry) -> FoundCycle:
    answer: FoundCycle = {"completed_at": cycle["completed_at"], "branch": cycle["branch"]}
    plan = cycle["plan"]
    if plan:
        answer["topic"] = plan["topic"]
        answer["decisions"] = [
            {"title": issue["title"], "decision": issue["decision"]}
            for issue in plan["issues"]
            if issue["status"] == "decided" and "decision" in issue
        ]
    answer["task_count"] = len(cycle["tasks"])
    return answer


class TasksSummary(TypedDict):
    total: int
    completed: int
    pending: int


class SessionContext(TypedDict):
    branch: str
    activeMode: str | None
    goal: NotRequired[str]
    tasksSummary: NotRequired[TasksSummary]
    decisions: list[Any]


@operation(OfProject, *IN_WORKSPACE, PlanningCode.STATE_UNAVAILABLE, slow=True, read_only=True)
def context(p: OfProject, caller: Caller) -> SessionContext:
    """The branch, the goal, the progress of the tasks, and the decisions."""
    project = workspaces.locate(p.project_root)
    decided = selectors.decided(project.root)
    try:
        mirror.import_changes(project)
        found = selectors.snapshot(project.workspace_id)
    except NexusError:  # a malformed file is skipped, and one that another process changes is read as it is
        found = selectors.snapshot_of_file(project.root)
    answer: SessionContext = {
        "branch": branch_of(project.root),
        "activeMode": "team" if found else None,
        "decisions": [],
    }
    if found:
        answer["goal"] = found.goal
        answer["tasksSummary"] = {
            "total": sum(found.statuses.values()),
            "completed": found.statuses.get(TaskStatus.COMPLETED, 0),
            "pending": found.statuses.get(TaskStatus.PENDING, 0),
        }
    answer["decisions"] = decided if decided is not None else found.decisions if found else []
    return answer


class ArtifactWrite(OfProject):
    filename: Annotated[str, Field(min_length=1, max_length=1_000)]
    content: str


class WrittenArtifact(TypedDict):
    success: bool
    path: str


@operation(
    ArtifactWrite, *CHANGING, CoordinationCode.PATH_OUTSIDE_WORKSPACE, slow=True, own_transaction=True, idempotent=True
)
def artifact_write(p: ArtifactWrite, caller: Caller) -> WrittenArtifact:
    """Write a file into the cycle's artifacts."""
    path = cycles.write_artifact(
        project_root=p.project_root, filename=p.filename, content=p.content, by=actor(caller, "artifact_write")
    )
    return {"success": True, "path": path}


class ResumeDecide(OfProject):
    id: int
    agent: Annotated[
        str | None, Field(min_length=1, max_length=255, description="Type or instance; default: its owner.")
    ] = None


class ResumeDecision(TypedDict):
    decision: Literal["fresh", "resume"]
    agent_id: NotRequired[str]
    why: str


@operation(ResumeDecide, *READING, Code.NOT_FOUND, slow=True, read_only=True)
def resume_decide(p: ResumeDecide, caller: Caller) -> ResumeDecision:
    """Whether to resume a session (`agent_id`) for a task or to start a new one."""
    project = workspaces.locate(p.project_root)
    mirror.import_changes(project)
    board = documents.tasks_document(project.workspace_id)
    entry = next((each for each in board["tasks"] if each["id"] == p.id), None) if board else None
    if entry is None:
        raise NexusError(Code.NOT_FOUND, f"Task id {p.id} not found", {"id": p.id})
    task = task_of(entry)
    with Directory(project.root) as directory:
        tracked, edited = directory.read(schemas.TRACKER.path), directory.read(EDITS)
    found = state.resume_decision(
        task,
        p.agent or task.owner_agent_id or task.owner or None,
        [] if tracked is None else schemas.TRACKER.parse(tracked),
        edits.history(edited),
    )
    answer: ResumeDecision = {"decision": found.decision, "why": found.why}
    return answer if found.agent_id is None else {**answer, "agent_id": found.agent_id}


REQUIRED = ("title", "context", "deps")  # fields that a task must have


class TaskEdit(OfProject):
    id: Reference
    title: Text | None = None
    context: Text | None = None
    deps: Annotated[list[Reference] | None, Field(max_length=MOST_DEPS)] = None
    approach: str | None = None
    acceptance: str | None = None
    risk: str | None = None
    plan_issue: Reference | None = None
    owner: Annotated[str | None, Field(description="Whose it is from now on; null: nobody's.")] = None
    owner_agent_id: str | None = None
    owner_reuse_policy: Literal["fresh", "resume_if_same_artifact", "resume"] | None = None
    acceptance_criteria: Criteria = None
    verifier: Verifier = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters that the call named. Null for a field that a task must have leaves it as it is."""
        named = {name: getattr(self, name) for name in self.model_fields_set - {"project_root", "id"}}
        return {name: value for name, value in named.items() if value is not None or name not in REQUIRED}


@operation(
    TaskEdit,
    *CHANGING,
    Code.NOT_FOUND,
    requires=(OPERATORS_ONLY,),
    tool=False,
    slow=True,
    own_transaction=True,
    idempotent=True,
)
def task_edit(p: TaskEdit, caller: Caller) -> AddedTask:
    """Change a task. An omitted field keeps its value; null clears an optional one. If its result is being checked,
    other criteria or another verifier examine it again."""
    task, warnings = tasks.edit(
        project_root=p.project_root, number=p.id, given=p.arguments, by=actor(caller, "task_edit")
    )
    changed: AddedTask = {"task": documents.task_entry(task)}
    if warnings:
        changed["warnings"] = warnings
    return changed
