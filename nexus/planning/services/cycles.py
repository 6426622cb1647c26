"""The end of a cycle, and a cycle's artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple, cast

from django.db.models import Count, Max, Q

from coordination.errors import CoordinationCode
from coordination.services import agents, workspaces
from coordination.services.workspaces import ProjectDirectory
from nexus.core.clock import iso_milliseconds, now
from nexus.core.database.store import write
from nexus.core.foreign_files import is_of_repository
from nexus.core.operations.errors import Code, NexusError
from nexus.core.size_limits import within_limit
from nexus.planning import documents, mirror
from nexus.planning.directory import ARTIFACTS, EDITS, NO_BRANCH, REOPENED, Directory, PlanningCode, branch_of
from nexus.planning.edits import counts as edits_of
from nexus.planning.mirror import Change
from nexus.planning.models import Board, Cycle, Plan, Task, TaskCheckRun, TaskStatus
from nexus.planning.notices import emit_event
from nexus.planning.schemas import (
    HISTORY,
    LATER,
    MOST_CYCLES,
    VERSION,
    CycleEntry,
    PlanDocument,
    TaskEntry,
    has_later_owner,
)
from nexus.planning.services.changes import Actor, changing

LOOP = 3  # edits of one file in a cycle
TRIES = 3  # to archive while others make changes


class Closed(NamedTuple):
    """A cycle that was closed."""

    entry: CycleEntry
    goal: str
    deleted: list[str]
    total: int
    looped: bool


class _Changed(Exception):
    """Plan or tasks changed after the cycle was made from them."""


def close(*, project_root: str, by: Actor, unfinished: bool = True) -> Closed:
    """Move plan and tasks to the history and remove their files, also `unfinished` tasks. Raises INVALID_TRANSITION
    where there are any and must not be, and as `changing` does.

    The cycle is made before the transaction, so that no other writer waits for megabytes of text.
    """
    project = workspaces.locate(project_root)
    for _ in range(TRIES):
        mirror.import_changes(project)
        revision = mirror.revision(project)
        plan, tasks = documents.plan_document(project.workspace_id), documents.tasks_document(project.workspace_id)
        entries = tasks["tasks"] if tasks else []
        if not unfinished:
            _check_finished(entries)
        later = by.later or _is_later(project.workspace_id, entries)
        version = {"extra": {VERSION: LATER}} if later else {}
        made = _build(project, now(), {"plan": plan, "tasks": entries, **version}, later=later)
        with suppress(_Changed), changing(project_root, by) as change:
            if change.imported or mirror.revision(project) != revision:
                raise _Changed
            return _close(change, made, tasks["goal"] if tasks else "", by)
    raise NexusError(
        PlanningCode.STATE_BUSY,
        "Others change the tasks while the cycle is closed; send the same call again in a moment.",
        {"retryable": True},
    )


def _close(change: Change, made: tuple[CycleEntry, Cycle], goal: str, by: Actor) -> Closed:
    workspace_id, (entry, cycle) = change.project.workspace_id, made
    edits = None
    with suppress(NexusError):  # it may be too large, or a link: it ends with the cycle, and must not prevent the end
        edits = change.directory.read(EDITS)
    there = {"plan.json": entry["plan"] is not None, "tasks.json": documents.open_board(workspace_id) is not None}
    deleted = [name for name, is_there in there.items() if is_there]
    deleted += [path.rpartition("/")[2] for path in (EDITS, REOPENED) if change.directory.stamp(path)]
    total = _archive(change, cycle)
    Plan.objects.filter(pk=workspace_id).delete()
    Board.objects.filter(pk=workspace_id).delete()
    TaskCheckRun.objects.filter(task__workspace=workspace_id, task__closed_at=None).drop()
    Task.objects.current(workspace_id).update(closed_at=change.moment, held_by=None)
    emit_event(
        workspace_id,
        "cycle.closed",
        by.name,
        change.moment,
        cycle=entry["completed_at"],
        topic=entry["plan"]["topic"][:200] if entry["plan"] else None,
        tasks=len(entry["tasks"]),
    )
    change.remove += [EDITS, REOPENED]
    return Closed(entry, goal, deleted, total, _looped(edits))


def _check_finished(tasks: Sequence[TaskEntry]) -> None:
    if left := [task["id"] for task in tasks if str(task["status"]) != TaskStatus.COMPLETED]:
        raise NexusError(
            Code.INVALID_TRANSITION,
            f"Tasks {', '.join(map(str, left[:20]))} are not completed; complete them first.",
            {"tasks": left},
        )


def archive_plan(change: Change, plan: PlanDocument, by: Actor) -> None:
    """Append a plan without tasks to the history. Call it inside a change."""
    later = by.later or _is_later(change.project.workspace_id, ())
    _, cycle = _build(change.project, change.moment, {"plan": plan, "tasks": []}, later=later)
    _archive(change, cycle)


def _build(
    project: ProjectDirectory, moment: datetime, what: Mapping[str, Any], *, later: bool
) -> tuple[CycleEntry, Cycle]:
    """Return a cycle of `what` (`plan` and `tasks`), as its file contains it and as its row."""
    branch = branch_of(project.root)
    ended = {"completed_at": iso_milliseconds(moment), "branch": "" if later and branch == NO_BRANCH else branch}
    entry = cast(CycleEntry, {**ended, **what})
    return entry, documents.cycle_row(project.workspace_id, entry, None)


def _is_later(workspace_id: str, tasks: Sequence[TaskEntry]) -> bool:
    """Return whether a project's files are of a version after 0.2."""
    if tasks:
        return has_later_owner(tasks[0])
    last = Cycle.objects.in_history().filter(workspace_id=workspace_id).order_by("-position")
    return last.annotate(later=Q(document__contains=f'"{VERSION}"')).values_list("later", flat=True).first() or False


def _archive(change: Change, cycle: Cycle) -> int:
    """Append a cycle to the history; return the number of cycles. Call it inside a change. Raises CONTENT_TOO_LARGE."""
    cycles = Cycle.objects.in_history().filter(workspace_id=change.project.workspace_id)
    last, total = cycles.aggregate(last=Max("position"), total=Count("pk")).values()
    if total >= MOST_CYCLES:
        raise NexusError(
            Code.CONTENT_TOO_LARGE,
            f".nexus/{HISTORY.path} has {total} cycles, and {MOST_CYCLES} are taken. Nothing was changed. "
            f"{mirror.MAKE_ROOM[HISTORY.path]}",
            {"file": f".nexus/{HISTORY.path}", "cycles": total, "max_cycles": MOST_CYCLES},
        )
    cycle.position = (last or 0) + 1
    cycle.save()
    change.archived = True
    change.adds[HISTORY.path] += documents.cycle_length(cycle)
    return int(total) + 1


def _looped(edits: bytes | None) -> bool:
    """Return whether the edit tracker has a file that was edited LOOP times or more."""
    return any(count >= LOOP for count in edits_of(edits).values())


def write_artifact(*, project_root: str, filename: str, content: str, by: Actor, most: int | None = None) -> str:
    """Write a file of `most` bytes, by default max_inline_bytes, into the cycle's artifacts, replacing one of that
    name; return its absolute path.

    Raises PATH_OUTSIDE_WORKSPACE for a name outside of the artifacts, CONTENT_TOO_LARGE, and as `changing` does.
    """
    within_limit(content, "content", most)
    name = artifact_name(filename)
    project = workspaces.locate(project_root)
    with (
        Directory(project.root) as directory,
        directory.locked(),
    ):  # outside of the transaction; to repeat it is harmless
        directory.write(f"{ARTIFACTS}/{name}", content.encode("utf-8", "surrogatepass"))
    with write(*by.names(project)):
        moment = now()
        workspaces.ensure(project, moment)
        with by.recorded():
            emit_event(project.workspace_id, "artifact.written", by.name, moment, filename=name)
        if by.name is not None:
            agents.touch(by.name, moment)
    return f"{project.root}/.nexus/{ARTIFACTS}/{name}"


def artifact_name(filename: str) -> str:
    """Return the name relative to the artifacts' directory. Raises PATH_OUTSIDE_WORKSPACE."""
    parts = filename.replace("\\", "/").split("/")
    bad = not filename.strip() or any(
        part in ("", ".", "..") or len(part.encode("utf-8", "replace")) > 200 for part in parts
    )
    if any(map(is_of_repository, parts)):  # git runs what the configuration of a repository says
        raise NexusError(
            CoordinationCode.PATH_OUTSIDE_WORKSPACE,
            "filename is git's, or could make a directory a repository of git: name no part of it .git, HEAD, objects, "
            "refs or commondir, in any case.",
            {"filename": filename[:200]},
        )
    if bad or len(parts) > 8 or not filename.isprintable():
        raise NexusError(
            CoordinationCode.PATH_OUTSIDE_WORKSPACE,
            "filename leads out of the artifacts' directory, or is no file's name; use one such as notes/api.md.",
            {"filename": filename[:200]},
        )
    return "/".join(parts)
