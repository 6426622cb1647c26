"""Each mirrored file as rows, and the rows as its text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from coordination.ids import new_id
from core.database.prepared import Select, Slot, Update, insert
from planning import notices, schemas
from planning.models import Board, Cycle, Issue, Plan, Task
from planning.notices import told
from planning.schemas import CycleEntry, HistoryDocument, IssueEntry, PlanDocument, StateFile, TaskEntry, TasksDocument

ISSUE_FIELDS = ("decision", "how_agents", "how_summary", "how_agent_ids")
TASK_FIELDS = ("approach", "acceptance", "risk", "plan_issue", "owner", "owner_agent_id", "owner_reuse_policy")
# An entry's fields in their order, each with its column.
ISSUE_COLUMNS = {"id": "number", **{name: name for name in ("title", "status", *ISSUE_FIELDS)}}
TASK_COLUMNS = {
    "id": "number",
    **{name: name for name in ("title", "context", "status", "deps", *TASK_FIELDS)},
    "created_at": "stamp",
}
CHANGED = ("position", "updated_at", *(column for column in TASK_COLUMNS.values() if column != "number"))

_plan = Select(lambda: Plan.objects.filter(pk=Slot("workspace_id")))
_issues = Select(
    lambda: (
        Issue.objects.filter(plan_id=Slot("workspace_id"))
        .order_by("position", "number")
        .values_list(*ISSUE_COLUMNS.values())
    )
)
_board = Select(lambda: Board.objects.filter(pk=Slot("workspace_id")))
_tasks = Select(lambda: Task.objects.current(Slot("workspace_id")).values_list(*TASK_COLUMNS.values()))
# A file may change thousands of tasks, and every writer waits for them: prepared.
_change = Update(lambda: Task.objects.filter(pk=Slot("pk")), **{name: Slot(name) for name in CHANGED})
_end = Update(lambda: Task.objects.filter(pk=Slot("pk")), closed_at=Slot("moment"), updated_at=Slot("moment"))


@dataclass(frozen=True)
class Kept:
    """A file that mirrors rows."""

    file: StateFile[Any]
    text: Callable[[str], bytes | None]  # of a workspace_id; None where there is to be no file
    take_in: Callable[[str, Any, datetime], None]  # a document that somebody else wrote; None for a removed file
    stamped: bool = False  # too large to be read with each call: its stamp is looked at first


def issue_entry(issue: Issue) -> IssueEntry:
    """An issue as its file has it."""
    return cast(IssueEntry, _entry(ISSUE_COLUMNS, [getattr(issue, column) for column in ISSUE_COLUMNS.values()]))


def task_entry(task: Task) -> TaskEntry:
    """A task as its file has it."""
    return cast(TaskEntry, _entry(TASK_COLUMNS, [getattr(task, column) for column in TASK_COLUMNS.values()]))


def _entry(names: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def active_plan(workspace_id: str) -> Plan | None:
    """The plan that is active; None without one."""
    return _plan.first(workspace_id=workspace_id)


def plan_document(workspace_id: str) -> PlanDocument | None:
    """The plan that is active, as its file has it; None without one."""
    plan = active_plan(workspace_id)
    if plan is None:
        return None
    issues = [_entry(ISSUE_COLUMNS, row) for row in _issues(workspace_id=workspace_id)]
    document: dict[str, Any] = {"id": plan.number, "topic": plan.topic, "issues": issues}
    if plan.research_summary is not None:
        document["research_summary"] = plan.research_summary
    return cast(PlanDocument, {**document, "created_at": plan.created_at})


def open_board(workspace_id: str) -> Board | None:
    """What the tasks of the cycle that is open have in common; None without any."""
    return _board.first(workspace_id=workspace_id)


def tasks_document(workspace_id: str) -> TasksDocument | None:
    """The tasks of the cycle that is open, as their file has them; None without any."""
    board = open_board(workspace_id)
    if board is None:
        return None
    tasks = [_entry(TASK_COLUMNS, row) for row in _tasks(workspace_id=workspace_id)]
    return cast(TasksDocument, {"goal": board.goal, "decisions": board.decisions, "tasks": tasks})


def _plan_text(workspace_id: str) -> bytes | None:
    document = plan_document(workspace_id)
    return None if document is None else schemas.text_of(document)


def _tasks_text(workspace_id: str) -> bytes | None:
    document = tasks_document(workspace_id)
    return None if document is None else schemas.text_of(document)


def _history_text(workspace_id: str) -> bytes | None:
    documents = Cycle.objects.listed().filter(workspace_id=workspace_id).order_by("position", "pk")
    cycles = ["    " + document.replace("\n", "\n    ") for document in documents.values_list("document", flat=True)]
    return ('{\n  "cycles": [\n' + ",\n".join(cycles) + "\n  ]\n}\n").encode() if cycles else None


def cycle_row(workspace_id: str, entry: CycleEntry, position: int) -> Cycle:
    """The row of a cycle, not yet saved."""
    document = json.dumps(entry, indent=2, ensure_ascii=False)
    plan = entry["plan"]
    return Cycle(
        workspace_id=workspace_id,
        position=position,
        digest=_digest(document),
        completed_at=entry["completed_at"],
        branch=entry["branch"],
        plan_number=plan["id"] if plan else None,
        topic=plan["topic"] if plan else None,
        task_count=len(entry["tasks"]),
        document=document,
        words=json.dumps(entry, ensure_ascii=False, separators=(",", ":")).lower(),
    )


def _digest(document: str) -> str:
    return hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()


def _take_in_plan(workspace_id: str, document: PlanDocument | None, moment: datetime) -> None:
    known = {issue.number: issue for issue in Issue.objects.filter(plan_id=workspace_id)}
    if document is None:
        Plan.objects.filter(pk=workspace_id).delete()
        told(workspace_id, "plan.removed", None, moment, source="file")
        return
    former = Plan.objects.filter(pk=workspace_id).first()
    if former is not None and former.number != document["id"]:
        former, known = None, {}
        Plan.objects.filter(pk=workspace_id).delete()
    numbers = [entry["id"] for entry in document["issues"]]
    Plan.objects.update_or_create(
        workspace_id=workspace_id,
        defaults={
            "number": document["id"],
            "topic": document["topic"],
            "research_summary": document.get("research_summary"),
            "created_at": document["created_at"],
            "next_issue": max([0, *numbers, (former.next_issue if former else 1) - 1]) + 1,
        },
    )
    Issue.objects.filter(plan_id=workspace_id).exclude(number__in=numbers).delete()
    for position, entry in enumerate(document["issues"], start=1):
        issue = known.get(entry["id"]) or Issue(plan_id=workspace_id, number=entry["id"])
        if issue.decision != entry.get("decision"):
            issue.decided_by, issue.decided_at = None, None
        issue.position, issue.title, issue.status = position, entry["title"], entry["status"]
        for field in ISSUE_FIELDS:
            setattr(issue, field, entry.get(field))
        issue.save()
    told(workspace_id, "plan.started" if former is None else "plan.updated", None, moment, source="file")


def _take_in_tasks(workspace_id: str, document: TasksDocument | None, moment: datetime) -> None:
    known = {task.number: task for task in Task.objects.current(workspace_id)}
    startable = notices.ready(workspace_id)
    if document is None:
        Board.objects.filter(pk=workspace_id).delete()
    else:
        Board.objects.update_or_create(
            workspace_id=workspace_id, defaults={"goal": document["goal"], "decisions": document["decisions"]}
        )
    entries = {entry["id"]: entry for entry in document["tasks"]} if document else {}
    for number in known.keys() - entries.keys():
        _end(pk=known[number].pk, moment=moment)
        told(workspace_id, "task.removed", None, moment, task=known[number], source="file")
    for position, entry in enumerate(entries.values(), start=1):
        task = known.get(entry["id"])
        if task is not None and task_entry(task) == entry:
            if task.position != position:
                Task.objects.filter(pk=task.pk).update(position=position)
            continue
        new = task is None
        if task is None:
            task = Task(task_key=new_id("tsk"), workspace_id=workspace_id, number=entry["id"], created_at=moment)
        before = task.status
        task.position, task.title, task.context = position, entry["title"], entry["context"]
        task.status, task.deps, task.stamp = entry["status"], entry["deps"], entry.get("created_at")
        for field in TASK_FIELDS:
            setattr(task, field, entry.get(field))
        task.updated_at = moment
        if new:
            insert(task)
        else:
            _change(pk=task.pk, **{name: getattr(task, name) for name in CHANGED})
        what = "task.added" if new else "task.completed" if before != task.status == "completed" else "task.updated"
        told(workspace_id, what, None, moment, task=task, source="file")
        if not new and before != task.status:
            notices.tell_holder(task, None, moment)
    notices.tell_ready(workspace_id, startable, None, moment)


def _take_in_history(workspace_id: str, document: HistoryDocument | None, moment: datetime) -> None:
    rows = [
        cycle_row(workspace_id, entry, position)
        for position, entry in enumerate(document["cycles"] if document else [], start=1)
    ]
    known: dict[str, list[int]] = {}
    for digest, pk in Cycle.objects.filter(workspace_id=workspace_id).order_by("-pk").values_list("digest", "pk"):
        known.setdefault(digest, []).append(pk)
    Cycle.objects.filter(workspace_id=workspace_id).update(position=None)
    fresh = []
    for row in rows:
        if same := known.get(row.digest):
            Cycle.objects.filter(pk=same.pop()).update(position=row.position)
        else:
            fresh.append(row)
    Cycle.objects.bulk_create(fresh, batch_size=100)
    told(workspace_id, "history.changed", None, moment, source="file", cycles=len(rows), new=len(fresh))


KEPT_FILES = (
    Kept(schemas.PLAN, _plan_text, _take_in_plan),
    Kept(schemas.TASKS, _tasks_text, _take_in_tasks),
    Kept(schemas.HISTORY, _history_text, _take_in_history, stamped=True),
)
