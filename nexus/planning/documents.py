"""Conversion between the mirrored files and the rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

from django.db.models import Q
from pydantic_core import to_json

from coordination.ids import new_id
from nexus.planning import directory, notices, rules, schemas, submissions
from nexus.planning.models import Board, Cycle, Issue, MirroredFile, Plan, Task, TaskStatus
from nexus.planning.notices import emit_event
from nexus.planning.schemas import (
    CycleEntry,
    HistoryDocument,
    IssueEntry,
    PlanDocument,
    StateFile,
    TaskEntry,
    TasksDocument,
)

T = TypeVar("T")
DEEPER, BESIDE_VALUES = 8, 1_000  # bytes: a line's indentation in a file, and the rest of an entry without its values
AT_ONCE = 50  # entries of a foreign file in one transaction: every writer waits for it

ISSUE_FIELDS = ("decision", "how_agents", "how_summary", "how_agent_ids")
TASK_FIELDS = ("approach", "acceptance", "risk", "plan_issue", "owner", "owner_agent_id", "owner_reuse_policy")
# An entry's fields in their order, each with its column.
ISSUE_COLUMNS = {"id": "number", **{name: name for name in ("title", "status", *ISSUE_FIELDS, "extra")}}
TASK_COLUMNS = {
    "id": "number",
    **{name: name for name in ("title", "context", "status", "deps", *TASK_FIELDS)},
    "created_at": "stamp",
    "extra": "extra",
}
CHANGED = (
    "position",
    *submissions.KEPT,
    *(column for column in TASK_COLUMNS.values() if column not in ("number", "status")),
)


@dataclass(frozen=True)
class DocumentImport:
    """The steps that bring a document into the rows, in short transactions, so that others can write in between.

    After a crash between two steps the file still counts as foreign: the next call prepares again and does the
    rest. Call `finish` in the transaction that records the file as imported.
    """

    pieces: Sequence[Callable[[datetime], None]]
    finish: Callable[[datetime], None]


@dataclass(frozen=True)
class MirroredDocument:
    """A file that mirrors rows."""

    file: StateFile[Any]
    text: Callable[[str], bytes | None]  # takes a workspace_id; None where there must be no file
    import_of: Callable[[str, Any], DocumentImport]  # takes a foreign document; None for a removed file
    stamped: bool = False  # too large to be read in each call: its stamp is compared first


def issue_entry(issue: Issue) -> IssueEntry:
    """Return an issue as its file contains it."""
    return cast(IssueEntry, _entry(ISSUE_COLUMNS, [getattr(issue, column) for column in ISSUE_COLUMNS.values()]))


def task_entry(task: Task) -> TaskEntry:
    """Return a task as its file contains it."""
    return cast(TaskEntry, _entry(TASK_COLUMNS, [getattr(task, column) for column in TASK_COLUMNS.values()]))


def _entry(names: Iterable[str], values: Iterable[Any]) -> dict[str, Any]:
    return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _with_extra(document: dict[str, Any], extra: dict[str, Any] | None) -> dict[str, Any]:
    return document if extra is None else {**document, "extra": extra}


def active_plan(workspace_id: str) -> Plan | None:
    """Return the active plan; None without one."""
    return Plan.objects.filter(pk=workspace_id).first()


def plan_document(workspace_id: str) -> PlanDocument | None:
    """Return the active plan as its file contains it; None without one."""
    plan = active_plan(workspace_id)
    if plan is None:
        return None
    rows = Issue.objects.filter(plan_id=workspace_id).order_by("position", "number")
    issues = [_entry(ISSUE_COLUMNS, row) for row in rows.values_list(*ISSUE_COLUMNS.values())]
    document: dict[str, Any] = {"id": plan.number, "topic": plan.topic, "issues": issues}
    if plan.research_summary is not None:
        document["research_summary"] = plan.research_summary
    document["created_at"] = plan.created_at
    return cast(PlanDocument, _with_extra(document, plan.extra))


def open_board(workspace_id: str) -> Board | None:
    """Return the common fields of the open cycle's tasks; None without tasks."""
    return Board.objects.filter(pk=workspace_id).first()


def tasks_document(workspace_id: str) -> TasksDocument | None:
    """Return the tasks of the open cycle as their file contains them; None without tasks."""
    board = open_board(workspace_id)
    if board is None:
        return None
    rows = Task.objects.current(workspace_id).values_list(*TASK_COLUMNS.values())
    tasks = [_entry(TASK_COLUMNS, row) for row in rows]
    document = {"goal": board.goal, "decisions": board.decisions, "tasks": tasks}
    return cast(TasksDocument, _with_extra(document, board.extra))


def _plan_text(workspace_id: str) -> bytes | None:
    document = plan_document(workspace_id)
    return None if document is None else schemas.PLAN.text(document)


def _tasks_text(workspace_id: str) -> bytes | None:
    document = tasks_document(workspace_id)
    return None if document is None else schemas.TASKS.text(document)


def _history_text(workspace_id: str) -> bytes | None:
    documents = Cycle.objects.in_history().filter(workspace_id=workspace_id).order_by("position", "pk")
    cycles = [_indented(document) for document in documents.values_list("document", flat=True)]
    if not cycles:
        return None
    files = MirroredFile.objects.filter(
        workspace_id=workspace_id, machine=directory.machine(), name=schemas.HISTORY.path
    )
    extra = files.values_list("extra", flat=True).first()
    beside = schemas.text_of(extra).decode().removesuffix("\n}\n") + ",\n" if extra else "{\n"
    return (beside + '  "cycles": [\n' + ",\n".join(cycles) + "\n  ]\n}\n").encode()


def _indented(document: str) -> str:
    return "    " + document.replace("\n", "\n    ")


def cycle_length(cycle: Cycle) -> int:
    """Return the bytes that a cycle adds to the history."""
    return len(_indented(cycle.document).encode()) + len(",\n")


def cycle_row(workspace_id: str, entry: CycleEntry, position: int | None) -> Cycle:
    """Return the row of a cycle, not yet saved; without a position, it is not in history.json."""
    in_file = schemas.CYCLE.in_file(cast(Mapping[str, Any], entry))
    document = schemas.text_of(in_file).decode().rstrip()
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
        words=to_json(in_file).decode().lower(),
    )


def length(*values: Any) -> int:
    """Return the most bytes that an entry with these values adds to a file."""
    text = schemas.text_of(values)
    return len(text) + DEEPER * text.count(b"\n") + BESIDE_VALUES


def _digest(document: str) -> str:
    return hashlib.sha256(document.encode("utf-8", "surrogatepass")).hexdigest()


def _import_plan(workspace_id: str, document: PlanDocument | None) -> DocumentImport:
    """Import the plan, then its issues in batches."""
    former = active_plan(workspace_id)
    if document is None:
        return DocumentImport((), partial(_remove_plan, workspace_id))
    goes_on = former is not None and former.number == document["id"]
    before = {issue.number: issue for issue in Issue.objects.filter(plan_id=workspace_id)} if goes_on else {}
    numbers = {entry["id"] for entry in document["issues"]}
    changed = [
        (position, entry)
        for position, entry in enumerate(document["issues"], start=1)
        if (issue := before.get(entry["id"])) is None or issue.position != position or issue_entry(issue) != entry
    ]
    pieces: list[Callable[[datetime], None]] = [partial(_change_plan, workspace_id, document)]
    pieces += [partial(_remove_issues, workspace_id, part) for part in _parts(sorted(before.keys() - numbers))]
    pieces += [partial(_change_issues, workspace_id, part) for part in _parts(changed)]
    what = "plan.updated" if goes_on else "plan.started"
    return DocumentImport(pieces, lambda moment: emit_event(workspace_id, what, None, moment, source="file"))


def _remove_plan(workspace_id: str, moment: datetime) -> None:
    Plan.objects.filter(pk=workspace_id).delete()
    emit_event(workspace_id, "plan.removed", None, moment, source="file")


def _change_plan(workspace_id: str, document: PlanDocument, moment: datetime) -> None:
    former = active_plan(workspace_id)
    if former is not None and former.number != document["id"]:
        former = None
        Plan.objects.filter(pk=workspace_id).delete()
    highest = max((entry["id"] for entry in document["issues"]), default=0)
    Plan.objects.update_or_create(
        workspace_id=workspace_id,
        defaults={
            "number": document["id"],
            "topic": document["topic"],
            "research_summary": document.get("research_summary"),
            "created_at": document["created_at"],
            "extra": document.get("extra"),
            "next_issue": max(highest + 1, former.next_issue if former else 1),
        },
    )


def _remove_issues(workspace_id: str, numbers: Sequence[int], moment: datetime) -> None:
    Issue.objects.filter(plan_id=workspace_id, number__in=numbers).delete()


def _change_issues(workspace_id: str, part: Sequence[tuple[int, IssueEntry]], moment: datetime) -> None:
    numbers = [entry["id"] for _, entry in part]
    known = {issue.number: issue for issue in Issue.objects.filter(plan_id=workspace_id, number__in=numbers)}
    for position, entry in part:
        issue = known.get(entry["id"]) or Issue(plan_id=workspace_id, number=entry["id"])
        if issue.decision != entry.get("decision"):
            issue.decided_by, issue.decided_at = None, None
        issue.position, issue.title, issue.status = position, entry["title"], entry["status"]
        for field in (*ISSUE_FIELDS, "extra"):
            setattr(issue, field, entry.get(field))
        issue.save()


def _import_tasks(workspace_id: str, document: TasksDocument | None) -> DocumentImport:
    """Import the tasks in batches, then send the notices of those that became ready. New tasks become visible at the
    end, with their board."""
    known = {task.number: task for task in Task.objects.current(workspace_id)}
    before = {number: task_entry(task) for number, task in known.items()}
    entries = {entry["id"]: entry for entry in document["tasks"]} if document else {}
    changed = [
        (position, entry)
        for position, entry in enumerate(entries.values(), start=1)
        if before.get(entry["id"]) != entry or known[entry["id"]].position != position
    ]
    gone = sorted(known.keys() - entries.keys())
    former = _removed_before(workspace_id, {number: entries[number] for number in entries.keys() - known.keys()})
    pieces = [partial(_remove_tasks, workspace_id, part) for part in _parts(gone)]
    pieces += [partial(_change_tasks, workspace_id, before, former, part) for part in _parts(changed)]
    startable = notices.ready(workspace_id)
    deps = {number: entry["deps"] for number, entry in entries.items()}
    status: dict[int, str] = {number: entry["status"] for number, entry in entries.items()}
    for number, task in {**former, **known}.items():
        was_completed = number in known and task.status == TaskStatus.COMPLETED
        if status.get(number) == TaskStatus.COMPLETED and task.is_checked and not was_completed:
            status[number] = TaskStatus.IN_PROGRESS  # it is submitted
    found = rules.ready(deps, status)
    ready = [number for number in found if number not in startable]
    owned: dict[tuple[str, ...], list[int]] = {}
    for number in ready:
        names = notices.owners(entries[number].get("owner_agent_id"), entries[number].get("owner"))
        if names:
            owned.setdefault(names, []).append(number)
    pieces += [partial(_log_ready, workspace_id, part) for part in _parts(ready)]
    pieces += [partial(_notify_owners, workspace_id, part) for part in _parts(list(owned.items()))]
    return DocumentImport(pieces, partial(_change_board, workspace_id, document))


def _removed_before(workspace_id: str, entries: Mapping[int, TaskEntry]) -> dict[int, Task]:
    """Return, by number, those of these new tasks that were removed from the file, as they were: only those whose
    results are checked."""
    rows = Task.objects.filter(Q(acceptance_criteria__isnull=False) | Q(verifier__isnull=False))
    rows = rows.filter(workspace_id=workspace_id, closed_at__isnull=False).order_by("closed_at")
    rows = rows.only("number", "stamp", "acceptance_criteria", "verifier", "claim_epoch", "created_by")
    found = (row for part in _parts(list(entries)) for row in rows.filter(number__in=part) if row.stamp)
    return {row.number: row for row in found if row.stamp == entries[row.number].get("created_at")}


def _change_board(workspace_id: str, document: TasksDocument | None, moment: datetime) -> None:
    if document is None:
        Board.objects.filter(pk=workspace_id).delete()
    else:
        Board.objects.update_or_create(
            workspace_id=workspace_id,
            defaults={name: document.get(name) for name in ("goal", "decisions", "extra")},
        )


def _pending(workspace_id: str, numbers: Sequence[int]) -> list[Task]:
    """Return those of these tasks that nobody has begun meanwhile."""
    return list(Task.objects.current(workspace_id).filter(number__in=numbers, status=TaskStatus.PENDING))


def _log_ready(workspace_id: str, numbers: Sequence[int], moment: datetime) -> None:
    notices.log_ready(_pending(workspace_id, numbers), None, moment)


def _notify_owners(workspace_id: str, owned: Sequence[tuple[tuple[str, ...], list[int]]], moment: datetime) -> None:
    for names, numbers in owned:
        if tasks := _pending(workspace_id, numbers[: notices.LISTED]):
            notices.notify_owner(names, tasks, max(len(numbers), len(tasks)), None, moment)


def _remove_tasks(workspace_id: str, numbers: Sequence[int], moment: datetime) -> None:
    for task in Task.objects.current(workspace_id).filter(number__in=numbers):
        submissions.leave(task)
        Task.objects.filter(pk=task.pk).update(closed_at=moment, updated_at=moment)
        emit_event(workspace_id, "task.removed", None, moment, task=task, source="file")


def _change_tasks(
    workspace_id: str,
    before: Mapping[int, TaskEntry],
    removed: Mapping[int, Task],
    part: Sequence[tuple[int, TaskEntry]],
    moment: datetime,
) -> None:
    """Change what differs from `before`. A change by a handoff since `before` was read stays. A task that was `removed`
    and comes back has the checks that it had. What is completed in the file and is checked is submitted."""
    numbers = [entry["id"] for _, entry in part]
    known = {task.number: task for task in Task.objects.current(workspace_id).filter(number__in=numbers)}
    for position, entry in part:
        task, given = known.get(entry["id"]), cast(Mapping[str, Any], entry)
        former = cast(Mapping[str, Any], before.get(entry["id"], {}) if task is not None else {})
        differs = {
            column: given.get(name) for name, column in TASK_COLUMNS.items() if given.get(name) != former.get(name)
        }
        if task is not None and not differs:
            Task.objects.filter(pk=task.pk).update(position=position)
            continue
        new = task is None
        if task is None:
            task = Task(task_key=new_id("tsk"), workspace_id=workspace_id, number=entry["id"], created_at=moment)
            if (same := removed.get(entry["id"])) is not None:
                task.acceptance_criteria, task.verifier = same.acceptance_criteria, same.verifier
                task.claim_epoch, task.created_by = same.claim_epoch, same.created_by
        was = task.status
        status = str(differs.pop("status", was))
        for column, value in differs.items():
            setattr(task, column, value)
        task.position, task.updated_at = position, moment
        submits = submissions.is_result(task, status)
        moves = status != was and not submits
        if moves:
            submissions.enter(task, status, moment)
        task.save(force_insert=new, update_fields=None if new else CHANGED)
        what = "task.added" if new else "task.completed" if moves and status == "completed" else "task.updated"
        emit_event(workspace_id, what, None, moment, task=task, source="file")
        if submits and not task.is_submitted:
            submissions.submit(task, None, moment)
        if not new and task.status != was:
            notices.notify_holder(task, None, moment)


def _import_history(workspace_id: str, document: HistoryDocument | None) -> DocumentImport:
    """Import new cycles in batches. They become visible at the end, when each gets its position."""
    wanted = [cycle_row(workspace_id, entry, None) for entry in (document["cycles"] if document else [])]
    known: dict[str, list[int]] = {}
    there = Cycle.objects.filter(workspace_id=workspace_id).order_by("-pk")
    for digest, pk in there.values_list("digest", "pk"):
        known.setdefault(digest, []).append(pk)
    cycles, fresh = [], []
    for row in wanted:
        if same := known.get(row.digest):
            row.pk = same.pop()
        else:
            fresh.append(row)
        cycles.append(row)
    pieces = [partial(_insert_cycles, part) for part in _parts(fresh)]
    extra = document.get("extra") if document else None
    return DocumentImport(pieces, partial(_list_cycles, workspace_id, cycles, len(fresh), extra))


def _insert_cycles(cycles: Sequence[Cycle], moment: datetime) -> None:
    Cycle.objects.bulk_create(cycles)


def _list_cycles(
    workspace_id: str, cycles: Sequence[Cycle], new: int, extra: dict[str, Any] | None, moment: datetime
) -> None:
    before = dict(Cycle.objects.in_history().filter(workspace_id=workspace_id).values_list("pk", "position"))
    after = {cycle.pk: position for position, cycle in enumerate(cycles, start=1)}
    changed = [Cycle(pk=pk, position=after.get(pk)) for pk in before | after if before.get(pk) != after.get(pk)]
    Cycle.objects.bulk_update(changed, ["position"], batch_size=AT_ONCE)
    MirroredFile.objects.update_or_create(
        workspace_id=workspace_id, machine=directory.machine(), name=schemas.HISTORY.path, defaults={"extra": extra}
    )
    emit_event(workspace_id, "history.changed", None, moment, source="file", cycles=len(cycles), new=new)


def _parts(rows: Sequence[T]) -> list[Sequence[T]]:
    return [rows[start : start + AT_ONCE] for start in range(0, len(rows), AT_ONCE)]


KEPT_FILES = (
    MirroredDocument(schemas.PLAN, _plan_text, _import_plan),
    MirroredDocument(schemas.TASKS, _tasks_text, _import_tasks),
    MirroredDocument(schemas.HISTORY, _history_text, _import_history, stamped=True),
)
