"""Workspaces: a real directory and what is coordinated in it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from coordination.errors import CoordinationCode
from coordination.lookups import workspace_exists
from coordination.models import Workspace
from coordination.paths import resolve_root, workspace_id_of
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError, invalid


class ProjectDirectory(NamedTuple):
    """A project directory, resolved; its workspace row may not exist yet."""

    workspace_id: str
    root: str


def locate(project_root: str) -> ProjectDirectory:
    """Return the workspace that `project_root` belongs to, without a query. Raises WORKSPACE_UNRESOLVED."""
    root = resolve_root(project_root)
    return ProjectDirectory(workspace_id_of(root), root)


def place_of(workspace: Workspace) -> ProjectDirectory:
    """Return the directory of a workspace, whether or not it exists now."""
    return ProjectDirectory(workspace.workspace_id, workspace.root_realpath)


def ensure(directory: ProjectDirectory, moment: datetime) -> bool:
    """Create the workspace's row inside the caller's transaction if it is missing; return whether it was new."""
    if workspace_exists(directory.workspace_id):
        return False
    Workspace.objects.create(
        workspace_id=directory.workspace_id, root_realpath=directory.root, created_at=moment, last_seen_at=moment
    )
    return True


def resolve(*, project_root: str, display_name: str | None) -> Workspace:
    """Resolve a path to its workspace; create or update the row.

    An omitted display_name keeps the stored one. Raises VALIDATION_ERROR for a blank or relative path,
    WORKSPACE_UNRESOLVED for one that does not exist.
    """
    if not project_root.strip() or not Path(project_root).is_absolute():
        raise invalid("project_root must be an absolute path.", field="project_root")
    directory, moment = locate(project_root), now()
    with write():
        ensure(directory, moment)
        workspace = Workspace.objects.get(pk=directory.workspace_id)
        workspace.last_seen_at = moment
        workspace.display_name = display_name if display_name is not None else workspace.display_name
        workspace.save(update_fields=["last_seen_at", "display_name"])
    return workspace


def require(workspace_id: str) -> Workspace:
    """Return the workspace with this id. Raises NOT_FOUND."""
    workspace = Workspace.objects.filter(pk=workspace_id).first()
    if workspace is None:
        raise NexusError(
            Code.NOT_FOUND, "No such workspace; call workspace_resolve first.", {"workspace_id": workspace_id}
        )
    return workspace


def mismatch(what: str, value: str) -> NexusError:
    """Return the error for an id that belongs to another workspace; it reveals nothing about the row."""
    return NexusError(
        CoordinationCode.WORKSPACE_MISMATCH,
        f"This {what} belongs to another workspace; check project_root.",
        {f"{what}_id": value},
    )
