"""The end of a cycle, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from django.db.models import Max

from coordination.errors import CoordinationCode
from coordination.services import agents, workspaces
from core.clock import iso_milliseconds, now
from core.database import write
from core.limits import within_limit
from core.operations.errors import NexusError
from planning import documents
from planning.branch import branch_of
from planning.directory import ARTIFACTS, EDITS, REOPENED, Directory
from planning.edits import counts as edits_of
from planning.mirror import Change
from planning.models import Board, Cycle, Plan, Task
from planning.notices import told
from planning.schemas import CycleEntry
from planning.services.changes import Actor, changing

LOOP = 3  # edits of one file in a cycle


class Closed(NamedTuple):
    """A cycle that was closed."""

    entry: CycleEntry
    goal: str
    deleted: list[str]
    total: int
    looped: bool


def close(*, project_root: str, by: Actor) -> Closed:
    """Put plan and tasks into the history, and remove their files. Raises what every change does."""
    with changing(project_root, by) as change:
        workspace_id = change.place.workspace_id
        plan, tasks = documents.plan_document(workspace_id), documents.tasks_document(workspace_id)
        edits = None
        with suppress(NexusError):  # it may be too large, or a link: it goes with the cycle, and holds up no end of it
            edits = change.directory.read(EDITS)
        deleted = [name for name, there in (("plan.json", plan), ("tasks.json", tasks)) if there is not None]
        deleted += [path.rpartition("/")[2] for path in (EDITS, REOPENED) if change.directory.stamp(path)]
        cycle = archive(change, {"plan": plan, "tasks": tasks["tasks"] if tasks else []})
        Plan.objects.filter(pk=workspace_id).delete()
        Board.objects.filter(pk=workspace_id).delete()
        Task.objects.current(workspace_id).update(closed_at=change.moment, held_by=None)
        total = Cycle.objects.listed().filter(workspace_id=workspace_id).count()
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


def archive(change: Change, what: Mapping[str, Any]) -> CycleEntry:
    """Inside a change: put `what` (`plan` and `tasks`) at the end of the history; the cycle as its file has it."""
    ended = {"completed_at": iso_milliseconds(change.moment), "branch": branch_of(change.place.root)}
    entry = cast(CycleEntry, {**ended, **what})
    listed = Cycle.objects.listed().filter(workspace_id=change.place.workspace_id)
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
        with by.recorded():
            told(place.workspace_id, "artifact.written", by.name, moment, filename=name)
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
