"""The verbs of planning. Each is one transaction that takes in what others wrote and leaves the files in step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, cast

from django.db.models import Max

from coordination.errors import CoordinationCode
from coordination.ids import new_id
from coordination.services import agents, workspaces
from coordination.services.workspaces import Place
from core.clock import now
from core.database import write
from core.database.prepared import Select, Slot, Update, insert
from core.limits import json_within_limit, within_limit
from core.operations.caller import OPERATOR_AGENT
from core.operations.errors import Code, NexusError, invalid
from planning import documents, mirror, notices, rules, selectors
from planning.branch import branch_of
from planning.directory import Directory
from planning.documents import told
from planning.edits import counts as edits_of
from planning.mirror import Change
from planning.models import Board, Cycle, Issue, IssueStatus, Plan, Task, TaskStatus
from planning.schemas import CycleEntry

MOST_ISSUES = 1_000  # of a plan
MOST_TASKS = 10_000  # of a cycle
ARTIFACTS = "state/artifacts"
EDITS, REOPENED = "state/edit-tracker.json", "state/reopen-tracker.json"
LOOP = 3  # edits of one file in a cycle
DECIDED = ("status", *documents.ISSUE_FIELDS, "decided_by", "decided_at")  # columns of an issue

_issues = Select(lambda: Issue.objects.filter(plan_id=Slot("plan_id"), number=Slot("number")))
_undecided = Select(
    lambda: Issue.objects.filter(plan_id=Slot("plan_id"), status=IssueStatus.PENDING).order_by("position", "number")
)
_decide = Update(lambda: Issue.objects.filter(pk=Slot("pk")), **{name: Slot(name) for name in DECIDED})
_last = Select(lambda: Task.objects.current(Slot("workspace_id")).reverse().values_list("position"))
_keep_status = Update(
    lambda: Task.objects.filter(pk=Slot("task_key")), status=Slot("status"), updated_at=Slot("moment")
)


@dataclass(frozen=True)
class Actor:
    """Who acts: an agent's id where the connection has one; `record` notes in the transaction what an operator did."""

    name: str | None = None
    record: Callable[[], None] = lambda: None
    operator: bool = False

    @property
    def signature(self) -> str | None:
        """What a decision is signed with: an agent's id, that of operators, or nothing for a nameless process."""
        return OPERATOR_AGENT if self.operator and self.name is None else self.name


def stamp(moment: datetime) -> str:
    """A time as the files have it: UTC, milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@contextmanager
def _changing(project_root: str, actor: Actor) -> Iterator[Change]:
    """A change of a project's plan, with what follows from it: tasks that became ready are told of."""
    place = workspaces.locate(project_root)
    with mirror.changing(place) as change:
        yield change
        actor.record()
        if actor.name is not None:
            agents.touch(actor.name, change.moment)


# Plans


def start(
    *, project_root: str, topic: str, issues: Sequence[str], research_summary: str, by: Actor
) -> tuple[Plan, bool]:
    """Begin a plan; the new one, and whether one that was active went to the history.

    Raises CONTENT_TOO_LARGE, and what every change does: WORKSPACE_UNRESOLVED, STATE_FILE_INVALID, STATE_UNAVAILABLE,
    STATE_BUSY.
    """
    json_within_limit([topic, research_summary, *issues], "issues")
    with _changing(project_root, by) as change:
        former = documents.plan_document(change.place.workspace_id)
        if former is not None:
            _archive(change, {"plan": former, "tasks": []})
            Plan.objects.filter(pk=change.place.workspace_id).delete()
        highest = Cycle.objects.filter(workspace_id=change.place.workspace_id, position__isnull=False)
        plan = Plan.objects.create(
            workspace_id=change.place.workspace_id,
            number=(highest.aggregate(highest=Max("plan_number"))["highest"] or 0) + 1,
            topic=topic,
            research_summary=research_summary,
            created_at=stamp(change.moment),
            next_issue=len(issues) + 1,
        )
        Issue.objects.bulk_create(
            Issue(plan=plan, number=number, position=number, title=title)
            for number, title in enumerate(issues, start=1)
        )
        told(plan.workspace_id, "plan.started", by.name, change.moment, plan_id=plan.number, topic=topic[:200])
    return plan, former is not None


def update(*, project_root: str, action: str, issue_id: int | None, title: str | None, by: Actor) -> Issue:
    """Add, remove, edit or reopen an issue of the active plan; the issue, as it is or was.

    Raises VALIDATION_ERROR and NOT_FOUND with the contract's words, CONTENT_TOO_LARGE, and what every change does.
    """
    within_limit(title, "title")
    with _changing(project_root, by) as change:
        plan = _active(change.place)
        if action == "add":
            issue = _add_issue(plan, title)
        elif action in ("remove", "reopen", "edit"):
            issue = _changed_issue(plan, action, issue_id, title)
        else:
            raise invalid("Unknown action", field="action")
        what = "plan.reopened" if action == "reopen" else "plan.updated"
        told(
            plan.workspace_id,
            what,
            by.name,
            change.moment,
            action=action,
            issue_id=issue.number,
            title=issue.title[:200],
        )
    return issue


def decide(
    *,
    project_root: str,
    issue_id: int,
    summary: str,
    how_agents: list[str] | None,
    how_summary: Mapping[str, str] | None,
    how_agent_ids: Mapping[str, str] | None,
    by: Actor,
) -> tuple[Issue, list[Issue]]:
    """Decide an issue of the active plan, or decide it anew; the issue, and those that are left to decide.

    Raises NOT_FOUND with the contract's words, CONTENT_TOO_LARGE, and what every change does.
    """
    json_within_limit([summary, how_agents, how_summary, how_agent_ids], "summary")
    with _changing(project_root, by) as change:
        plan = _active(change.place)
        issue = _issue(plan, issue_id)
        issue.status, issue.decision = IssueStatus.DECIDED, summary
        for name, given in (("how_agents", how_agents), ("how_summary", how_summary), ("how_agent_ids", how_agent_ids)):
            if given is not None:
                setattr(issue, name, given)
        issue.decided_by, issue.decided_at = by.signature, change.moment
        _decide(**{name: getattr(issue, name) for name in ("pk", *DECIDED)})
        left = _undecided(plan_id=plan.pk)
        told(
            plan.workspace_id,
            "plan.decided",
            by.name,
            change.moment,
            issue_id=issue.number,
            title=issue.title[:200],
            decision=summary[:500],
            all_decided=not left,
        )
    return issue, left


def _active(place: Place) -> Plan:
    plan = documents.active_plan(place.workspace_id)
    if plan is None:
        raise NexusError(Code.NOT_FOUND, "No active plan session")
    return plan


def _issue(plan: Plan, issue_id: int) -> Issue:
    issue = _issues.first(plan_id=plan.pk, number=issue_id) if issue_id > 0 else None
    if issue is None:
        raise NexusError(Code.NOT_FOUND, f"Issue {issue_id} not found", {"issue_id": issue_id})
    return issue


def _add_issue(plan: Plan, title: str | None) -> Issue:
    if not title:
        raise invalid("title is required for add", field="title")
    last = plan.issues.aggregate(last=Max("position"))["last"] or 0
    if plan.issues.count() >= MOST_ISSUES:
        raise invalid(f"A plan has {MOST_ISSUES} issues at most; start another one.", field="title")
    issue = Issue.objects.create(plan=plan, number=plan.next_issue, position=last + 1, title=title)
    plan.next_issue += 1
    plan.save(update_fields=["next_issue"])
    return issue


def _changed_issue(plan: Plan, action: str, issue_id: int | None, title: str | None) -> Issue:
    if action == "edit" and (issue_id is None or not title):
        raise invalid("issue_id and title are required for edit", field="title" if issue_id is not None else "issue_id")
    if issue_id is None:
        raise invalid(f"issue_id is required for {action}", field="issue_id")
    issue = _issue(plan, issue_id)
    if action == "remove":
        plan.issues.filter(number=issue.number).delete()
    elif action == "edit":
        assert title is not None
        issue.title = title
        issue.save(update_fields=["title"])
    else:
        issue.status = IssueStatus.PENDING
        issue.decision = issue.how_agents = issue.how_summary = issue.how_agent_ids = None
        issue.decided_by = issue.decided_at = None
        issue.save()
    return issue


# Tasks


class NewTask(NamedTuple):
    """A task to add; the fields of its file."""

    title: str
    context: str
    deps: list[int]
    approach: str | None
    acceptance: str | None
    risk: str | None
    plan_issue: int | None
    owner: str | None
    owner_agent_id: str | None
    owner_reuse_policy: str | None


def add(
    *, project_root: str, new: NewTask, goal: str | None, decisions: list[str] | None, by: Actor
) -> tuple[Task, list[str]]:
    """Add a task to the cycle; the task, and what may be wrong with its dependencies.

    Raises VALIDATION_ERROR for more tasks than a cycle takes, CONTENT_TOO_LARGE, and what every change does.
    """
    json_within_limit([*new, goal, decisions], "context")
    with _changing(project_root, by) as change:
        workspace_id = change.place.workspace_id
        board = documents.open_board(workspace_id) or Board.objects.create(workspace_id=workspace_id)
        if goal is not None or decisions:
            board.goal = board.goal if goal is None else goal
            board.decisions = [*board.decisions, *(decisions or [])]
            board.save()
        deps, status = selectors.dependencies(workspace_id)
        if len(deps) >= MOST_TASKS:
            raise invalid(f"A cycle has {MOST_TASKS} tasks at most; close it with task_close.", field="title")
        number, before = max(deps, default=0) + 1, set(rules.ready(deps, status))
        (last,) = _last.first(workspace_id=workspace_id) or (0,)
        task = Task(
            task_key=new_id("tsk"),
            workspace_id=workspace_id,
            number=number,
            position=last + 1,
            stamp=stamp(change.moment),
            created_by=by.name,
            created_at=change.moment,
            updated_at=change.moment,
            **new._asdict(),
        )
        insert(task)
        told(workspace_id, "task.added", by.name, change.moment, task=task, owner=task.owner)
        notices.tell_ready(workspace_id, before, by.name, change.moment)
        deps[number] = task.deps
    return task, warnings(deps, number)


def warnings(deps: rules.Deps, number: int) -> list[str]:
    """What keeps a task from ever being ready: dependencies that there are not, and a circle."""
    found = []
    if strange := rules.unknown(deps, number):
        found.append(f"There is no task {', '.join(map(str, strange[:20]))}: until one has that id, this is not ready.")
    if circle := rules.cycle_of(deps, number):
        way = " → ".join(map(str, [*circle[:20], circle[0]]))
        found.append(f"{way} is a circle: none of these tasks becomes ready while each waits for the next.")
    return found


def change_status(*, project_root: str, number: int, status: str, by: Actor) -> Task:
    """Give a task of the cycle another status; any may follow any other.

    Raises NOT_FOUND with the contract's words, and what every change does.
    """
    with _changing(project_root, by) as change:
        task = _task(change.place, number)
        _set_status(task, status, by.name, change.moment)
        notices.tell_holder(task, by.name, change.moment)
    return task


def edit(*, project_root: str, number: int, given: Mapping[str, Any], by: Actor) -> tuple[Task, list[str]]:
    """Change fields of a task of the cycle, by name as NewTask has them; the task, and what is wrong with its `deps`.

    Raises NOT_FOUND with the contract's words, CONTENT_TOO_LARGE, and what every change does.
    """
    json_within_limit(list(given.values()), next(iter(given), "title"))
    with _changing(project_root, by) as change:
        task = _task(change.place, number)
        changed = [name for name, value in given.items() if getattr(task, name) != value]
        if changed:
            before = notices.ready(task.workspace_id)
            if {"owner", "owner_agent_id"} & set(changed):
                before.discard(number)  # to whom it goes now, it is news
            for name in changed:
                setattr(task, name, given[name])
            task.updated_at = change.moment
            task.save(update_fields=[*changed, "updated_at"])
            told(task.workspace_id, "task.updated", by.name, change.moment, task=task, changed=changed)
            notices.tell_holder(task, by.name, change.moment, changed)
            notices.tell_ready(task.workspace_id, before, by.name, change.moment)
        deps, _ = selectors.dependencies(task.workspace_id)
    return task, warnings(deps, number)


def _task(place: Place, number: int) -> Task:
    if documents.open_board(place.workspace_id) is None:
        raise NexusError(Code.NOT_FOUND, "tasks.json not found")
    task = selectors.numbered(place.workspace_id, number)
    if task is None:
        raise NexusError(Code.NOT_FOUND, f"Task id {number} not found", {"id": number})
    return task


def _set_status(task: Task, status: str, actor: str | None, moment: datetime) -> None:
    """Inside a change: the status, its event, and word of what became ready by it."""
    if task.status == status:
        return
    before = notices.ready(task.workspace_id)
    task.status, task.updated_at = status, moment
    _keep_status(task_key=task.task_key, status=status, moment=moment)
    what = "task.completed" if status == TaskStatus.COMPLETED else "task.updated"
    told(task.workspace_id, what, actor, moment, task=task, status=status)
    notices.tell_ready(task.workspace_id, before, actor, moment)


# Tasks that handoffs carry: what `handoffs.work` is given of this app


def find(*, workspace_id: str, number: int) -> Task:
    """The task of the open cycle. Raises NOT_FOUND."""
    task = selectors.numbered(workspace_id, number)
    if task is None:
        raise NexusError(Code.NOT_FOUND, f"Task id {number} not found", {"task_id": number})
    return task


def follow_handoff(
    *, task_key: str, place: Place, status: str, holder: str | None, actor: str | None, moment: datetime
) -> None:
    """Inside the transaction of a handoff that carries a task: the task has this status and this holder now.

    One whose cycle is closed stays as it is.
    """
    task = Task.objects.filter(pk=task_key, closed_at=None).first()
    if task is None:
        return
    task.held_by = holder
    task.save(update_fields=["held_by"])
    _set_status(task, status, actor, moment)
    mirror.follow(place)


# The cycle


class Closed(NamedTuple):
    """A cycle that was closed."""

    entry: CycleEntry
    goal: str
    deleted: list[str]
    total: int
    looped: bool


def close(*, project_root: str, by: Actor) -> Closed:
    """Put plan and tasks into the history, and remove their files. Raises what every change does."""
    with _changing(project_root, by) as change:
        workspace_id = change.place.workspace_id
        plan, tasks = documents.plan_document(workspace_id), documents.tasks_document(workspace_id)
        edits = change.directory.read(EDITS)
        deleted = [name for name, there in (("plan.json", plan), ("tasks.json", tasks)) if there is not None]
        deleted += [path.rpartition("/")[2] for path in (EDITS, REOPENED) if change.directory.stamp(path)]
        cycle = _archive(change, {"plan": plan, "tasks": tasks["tasks"] if tasks else []})
        Plan.objects.filter(pk=workspace_id).delete()
        Board.objects.filter(pk=workspace_id).delete()
        Task.objects.current(workspace_id).update(closed_at=change.moment, held_by=None)
        total = Cycle.objects.filter(workspace_id=workspace_id, position__isnull=False).count()
        told(
            workspace_id,
            "cycle.closed",
            by.name,
            change.moment,
            cycle=cycle["completed_at"],
            topic=plan["topic"][:200] if plan else None,
            tasks=len(cycle["tasks"]),
        )
        change.remove += [EDITS, REOPENED]
    return Closed(cycle, tasks["goal"] if tasks else "", deleted, total, _looped(edits))


def _archive(change: Change, what: Mapping[str, Any]) -> CycleEntry:
    ended = {"completed_at": stamp(change.moment), "branch": branch_of(change.place.root)}
    entry = cast(CycleEntry, {**ended, **what})
    listed = Cycle.objects.filter(workspace_id=change.place.workspace_id, position__isnull=False)
    last = listed.aggregate(last=Max("position"))["last"] or 0
    documents.cycle_row(change.place.workspace_id, entry, last + 1).save()
    change.archived = True
    return entry


def _looped(edits: bytes | None) -> bool:
    """Whether the edit tracker has a file that was edited LOOP times or more."""
    return any(count >= LOOP for count in edits_of(edits).values())


def write_artifact(*, project_root: str, filename: str, content: str, by: Actor) -> str:
    """Write a file into the cycle's artifacts, over one of that name; its absolute path.

    Raises PATH_OUTSIDE_WORKSPACE for a name that leads out of them, CONTENT_TOO_LARGE, and what every change does.
    """
    within_limit(content, "content")
    name = artifact_name(filename)
    place = workspaces.locate(project_root)
    with Directory(place.root) as directory, directory.locked():  # outside the transaction, and the same twice
        directory.write(f"{ARTIFACTS}/{name}", content.encode("utf-8", "surrogatepass"))
    with write():
        moment = now()
        workspaces.ensure(place, moment)
        told(place.workspace_id, "artifact.written", by.name, moment, filename=name)
        by.record()
        if by.name is not None:
            agents.touch(by.name, moment)
    return f"{place.root}/.nexus/{ARTIFACTS}/{name}"


def artifact_name(filename: str) -> str:
    """The name below the artifacts' directory. Raises PATH_OUTSIDE_WORKSPACE."""
    parts = filename.replace("\\", "/").split("/")
    bad = not filename.strip() or any(
        part in ("", ".", "..") or len(part.encode("utf-8", "replace")) > 200 for part in parts
    )
    if bad or len(parts) > 8 or not filename.isprintable():
        raise NexusError(
            CoordinationCode.PATH_OUTSIDE_WORKSPACE,
            "filename leads out of the artifacts' directory, or is no file's name; use one such as notes/api.md.",
            {"filename": filename[:200]},
        )
    return "/".join(parts)
