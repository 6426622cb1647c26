"""Workspaces: a real directory and what is coordinated in it. Their channels."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from django.db import IntegrityError

from coordination import sql
from coordination.errors import CoordinationCode
from coordination.ids import new_id
from coordination.models import Channel, Event, Workspace
from coordination.paths import moved, resolve_root, workspace_id_of
from coordination.services import audit, workspaces
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError, invalid, not_found


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
    if sql.known_workspace(workspace_id=directory.workspace_id):
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


_followers: list[Callable[[str, str], None]] = []


def register_follower(follow: Callable[[str, str], None]) -> None:
    """Register a function that changes the paths which an app keeps, given the old and the new path of a directory. It
    runs inside the transaction of the move, and may run again."""
    _followers.append(follow)


class MovedProject(NamedTuple):
    """A workspace whose directory has another path now."""

    old_root: str
    workspace: Workspace
    left: list[str]  # labels of apps whose rows stay with the old path, because the new one has such rows already


def move(*, old_root: str, project_root: str, operator: str) -> list[MovedProject]:
    """Give the rows of a directory that was renamed, and of the projects below it, to the workspaces of its new path.

    What the new path has already stays. The log is append-only: its events stay with the old path. Raises NOT_FOUND
    where no workspace is of the old path, VALIDATION_ERROR where that directory is still there or the new path is not
    absolute, WORKSPACE_UNRESOLVED.
    """
    directory, moment = locate_absolute(project_root), now()
    above, name = os.path.split(os.path.normpath(old_root))
    old = os.path.join(os.path.realpath(above), name)  # the directory itself may be a link to its new path now
    if Path(old).is_dir() and (old == directory.root or os.path.realpath(old) != directory.root):
        raise invalid(f"{old} is still there. Rename the directory first.", field="old_root")
    with write():
        known = Workspace.objects.filter(root_realpath__startswith=old).order_by("root_realpath")
        found = [(row, moved(row.root_realpath, old, directory.root)) for row in known]
        done = [_move(row, root, moment) for row, root in found if root != row.root_realpath]
        if not done:
            raise not_found("workspace", old)
        for follow in _followers:
            follow(old, directory.root)
        audit.record(operator, "workspace.moved", moment, old_root=old, project_root=directory.root)
    return done


def _move(old: Workspace, root: str, moment: datetime) -> MovedProject:
    new = ProjectDirectory(workspace_id_of(root), root)
    ensure(new, moment)
    for twin in Channel.objects.filter(workspace_id=new.workspace_id):
        for channel in Channel.objects.filter(workspace_id=old.pk, name=twin.name):
            _repoint(_relations(Channel), channel.pk, twin.pk)
            channel.delete()
    left = []
    relations = sorted(_relations(Workspace), key=lambda each: each.related_model._meta.app_label)
    for app, own in groupby(relations, key=lambda each: each.related_model._meta.app_label):
        try:
            with write():  # of an app that cannot give all, nothing is moved
                _repoint([each for each in own if each.related_model is not Event], old.pk, new.workspace_id)
        except IntegrityError:
            left.append(app)
    workspace = Workspace.objects.get(pk=new.workspace_id)
    workspace.display_name = workspace.display_name or old.display_name
    workspace.save(update_fields=["display_name"])
    return MovedProject(old.root_realpath, workspace, left)


def _relations(model: Any) -> list[Any]:
    """Return the relations by which other rows refer to a model's."""
    return [each for each in model._meta.get_fields(include_hidden=True) if each.auto_created and not each.concrete]


def _repoint(relations: Iterable[Any], old: str, new: str) -> None:
    """Let all rows that refer to one row refer to another. Where there may be one row only, the other's stays."""
    for relation in relations:
        rows, field = relation.related_model._base_manager, relation.field
        if field.primary_key:
            if rows.filter(pk=new).exists():
                continue
            rows.filter(pk=old).update(**{field.name: new})
            _repoint(_relations(relation.related_model), old, new)
        else:
            rows.filter(**{field.name: old}).update(**{field.name: new})


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
