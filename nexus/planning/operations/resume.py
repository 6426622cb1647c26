"""The operation that decides whether a task's agent is resumed or started afresh."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.services import workspaces
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.planning import documents, edits, mirror, reuse, schemas
from nexus.planning.directory import EDITS, Directory
from nexus.planning.operations.common import READING, OfProject
from nexus.planning.state import task_of
from nexus.planning.toolset import operation


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
    """Whether to resume a session (`agent_id`) for a task or to start afresh."""
    project = workspaces.locate(p.project_root)
    mirror.take_in(project)
    board = documents.tasks_document(project.workspace_id)
    entry = next((each for each in board["tasks"] if each["id"] == p.id), None) if board else None
    if entry is None:
        raise NexusError(Code.NOT_FOUND, f"Task id {p.id} not found", {"id": p.id})
    task = task_of(entry)
    with Directory(project.root) as directory:
        tracked, edited = directory.read(schemas.TRACKER.path), directory.read(EDITS)
    found = reuse.decided(
        task,
        p.agent or task.owner_agent_id or task.owner or None,
        [] if tracked is None else schemas.TRACKER.parse(tracked),
        edits.history(edited),
    )
    answer: ResumeDecision = {"decision": found.decision, "why": found.why}
    return answer if found.agent_id is None else {**answer, "agent_id": found.agent_id}
