"""Workspaces: a real directory and what is coordinated in it. Their channels."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from coordination.errors import CoordinationCode
from coordination.ids import new_id
from coordination.models import Channel, Workspace
from coordination.paths import resolve_root, workspace_id_of
from coordination.selectors import workspace_exists
from coordination.services import workspaces
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


def locate_absolute(project_root: str) -> ProjectDirectory:
    """Return the workspace of a path as `locate` does. Raises VALIDATION_ERROR for a blank or relative path, too."""
    if not project_root.strip() or not Path(project_root).is_absolute():
        raise invalid("project_root must be an absolute path.", field="project_root")
    return locate(project_root)


def directory_of(workspace: Workspace) -> ProjectDirectory:
    """Return the directory of a workspace, whether or not it exists now."""
    return ProjectDirectory(workspace.workspace_id, workspace.root_realpath)


def ensure(directory: ProjectDirectory, moment: datetime) -> bool:
    """Create the workspace's row inside the caller's transaction, which has its name, if it is missing; return whether
    it was new."""
    if workspace_exists(directory.workspace_id):
        return False
    Workspace.objects.create(
        workspace_id=directory.workspace_id, root_realpath=directory.root, created_at=moment, last_seen_at=moment
    )
    return True


def resolve(*, project_root: str, display_name: str | None) -> Workspace:
    """Resolve a path to its workspace; create or update the row.

    An omitted display_name keeps the stored one. Raises as `locate_absolute` does.
    """
    directory, moment = locate_absolute(project_root), now()
    with write(directory.workspace_id):
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


DEFAULT_CHANNEL = "general"
MAX_CHANNEL_NAME = 64


def create_channel(*, project_root: str, name: str) -> tuple[Channel, bool]:
    """Return the channel of this name, created if needed, and whether it is new.

    Raises VALIDATION_ERROR for a blank or overlong name or one with control characters, WORKSPACE_UNRESOLVED.
    """
    name = name.strip()
    if not name or len(name) > MAX_CHANNEL_NAME:
        raise invalid(f"name must have 1 to {MAX_CHANNEL_NAME} characters.", field="name")
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise invalid("name must not contain control characters.", field="name")
    directory, moment = workspaces.locate(project_root), now()
    with write(directory.workspace_id):
        workspaces.ensure(directory, moment)
        return _get_or_create_channel(directory.workspace_id, name, moment)


def list_and_seed_channels(*, project_root: str) -> list[Channel]:
    """Return the workspace's channels, oldest first; create `general` when it is missing."""
    directory = workspaces.locate(project_root)
    channels = Channel.objects.filter(workspace_id=directory.workspace_id)
    if not channels.filter(name=DEFAULT_CHANNEL).exists():
        moment = now()
        with write(directory.workspace_id):
            workspaces.ensure(directory, moment)
            _get_or_create_channel(directory.workspace_id, DEFAULT_CHANNEL, moment)
    return list(channels.order_by("created_at", "channel_id"))


def _get_or_create_channel(workspace_id: str, name: str, moment: datetime) -> tuple[Channel, bool]:
    return Channel.objects.get_or_create(
        workspace_id=workspace_id, name=name, defaults={"channel_id": new_id("chn"), "created_at": moment}
    )
