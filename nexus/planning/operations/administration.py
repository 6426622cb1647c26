"""Operators' operations on tasks; they are not tools for agents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.planning import documents
from nexus.planning.operations.common import CHANGING, OfProject, actor
from nexus.planning.operations.tasks import MOST_DEPS, AddedTask, Text
from nexus.planning.schemas import Reference
from nexus.planning.services import tasks
from nexus.planning.toolset import operation

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

    @property
    def given(self) -> dict[str, Any]:
        """The parameters that the call named. Null for a field that a task must have leaves it as it is."""
        named = {name: getattr(self, name) for name in self.model_fields_set - {"project_root", "id"}}
        return {name: value for name, value in named.items() if value is not None or name not in REQUIRED}


@operation(
    TaskEdit,
    *CHANGING,
    Code.NOT_FOUND,
    guards=(OPERATORS_ONLY,),
    tool=False,
    slow=True,
    own_transaction=True,
    idempotent=True,
)
def task_edit(p: TaskEdit, caller: Caller) -> AddedTask:
    """Change a task. What is left out keeps its value; null takes away what a task may be without."""
    task, warnings = tasks.edit(project_root=p.project_root, number=p.id, given=p.given, by=actor(caller, "task_edit"))
    changed: AddedTask = {"task": documents.task_entry(task)}
    if warnings:
        changed["warnings"] = warnings
    return changed
