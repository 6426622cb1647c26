"""Workspaces: project directories, and what is coordinated in them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.models import Workspace
from coordination.parameters import MOUNTED
from coordination.rows import WorkspaceRow, workspace_row
from coordination.services import workspaces
from coordination.toolset import operation
from core.operations.caller import Caller
from core.operations.errors import Code
from core.operations.parameters import Label, Nothing, Params


class WorkspaceResolve(Params):
    project_root: Annotated[str, MOUNTED, Field(max_length=4096, description="Absolute path of the project.")]
    display_name: Label | None = None


@operation(WorkspaceResolve, Code.VALIDATION_ERROR, CoordinationCode.WORKSPACE_UNRESOLVED, idempotent=True)
def workspace_resolve(p: WorkspaceResolve, caller: Caller) -> WorkspaceRow:
    """Get the workspace_id of a project directory, creating the workspace on first sight. Same real path, same id."""
    return workspace_row(workspaces.resolve(project_root=p.project_root, display_name=p.display_name))


class WorkspaceList(TypedDict):
    workspaces: list[WorkspaceRow]


@operation(Nothing, read_only=True)
def workspace_list(p: Nothing, caller: Caller) -> WorkspaceList:
    """List all workspaces of this store."""
    return {"workspaces": [workspace_row(row) for row in Workspace.objects.order_by("created_at", "workspace_id")]}
