"""Operations on earlier cycles, the state of the open one, and its artifacts."""

from __future__ import annotations

import json
from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.parameters import IN_WORKSPACE
from coordination.services import workspaces
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.planning import mirror, selectors
from nexus.planning.branch import branch_of
from nexus.planning.errors import PlanningCode
from nexus.planning.models import Cycle, TaskStatus
from nexus.planning.operations.common import CHANGING, READING, OfProject, actor
from nexus.planning.services import cycles
from nexus.planning.toolset import operation

MOST_CYCLES = 1_000


class HistorySearch(OfProject):
    query: Annotated[str | None, Field(max_length=1_000)] = None
    last_n: Annotated[int, Field(ge=1, le=MOST_CYCLES)] = 10


class Decision(TypedDict):
    title: str
    decision: str


class FoundCycle(TypedDict):
    completed_at: str
    branch: str
    topic: NotRequired[str]
    decisions: NotRequired[list[Decision]]
    task_count: NotRequired[int]


class FoundCycles(TypedDict):
    total: int
    showing: int
    cycles: list[FoundCycle]


@operation(HistorySearch, *READING, slow=True, read_only=True)
def history_search(p: HistorySearch, caller: Caller) -> FoundCycles:
    """The last cycles that have the query, with their decisions."""
    project = workspaces.locate(p.project_root)
    mirror.take_in(project)
    found = list(selectors.cycles(project.workspace_id, p.query).values_list("pk", flat=True))  # reads all texts once
    documents = dict(Cycle.objects.filter(pk__in=found[-p.last_n :]).values_list("pk", "document"))
    shown = [documents[key] for key in found[-p.last_n :] if key in documents]
    return {"total": len(found), "showing": len(shown), "cycles": [_found(json.loads(each)) for each in shown]}


def _found(cycle: dict[str, Any]) -> FoundCycle:
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
    """The branch, the goal, how far the tasks are, and what was decided."""
    project = workspaces.locate(p.project_root)
    decided = selectors.decided(project.root)
    try:
        mirror.take_in(project)
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
