"""Operations on workspaces: project directories, and what is coordinated in them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from coordination.errors import CoordinationCode
from coordination.models import Workspace
from coordination.parameters import MOUNTED
from coordination.rows import WorkspaceRow, workspace_row
from coordination.services import workspaces
from coordination.toolset import operation
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.pages import Paged, PageEnd, page
from nexus.core.operations.parameters import Label, Params


class WorkspaceResolve(Params):
    project_root: Annotated[str, MOUNTED, Field(max_length=4096, description="Absolute path of the project.")]
    display_name: Label | None = None


@operation(WorkspaceResolve, Code.VALIDATION_ERROR, CoordinationCode.WORKSPACE_UNRESOLVED, idempotent=True)
def workspace_resolve(p: WorkspaceResolve, caller: Caller) -> WorkspaceRow:
    """Get the workspace_id of a project directory, creating the workspace on first sight. Same real path, same id."""
    return workspace_row(workspaces.resolve(project_root=p.project_root, display_name=p.display_name))


class WorkspaceList(PageEnd):
    workspaces: list[WorkspaceRow]


@operation(Paged, Code.VALIDATION_ERROR, read_only=True)
def workspace_list(p: Paged, caller: Caller) -> WorkspaceList:
    """List all workspaces of this store."""
    rows, end = page(Workspace.objects.all(), p, by="created_at")
    return {"workspaces": [workspace_row(row) for row in rows], **end}
