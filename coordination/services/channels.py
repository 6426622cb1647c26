"""Channels: labels on messages."""

from __future__ import annotations

import unicodedata
from datetime import datetime

from coordination.ids import new_id
from coordination.models import Channel
from coordination.services import workspaces
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import invalid

DEFAULT_CHANNEL = "general"
MAX_NAME = 64


def create(*, project_root: str, name: str) -> tuple[Channel, bool]:
    """Return the channel of this name, created if needed, and whether it is new.

    Raises VALIDATION_ERROR for a blank or overlong name or one with control characters, WORKSPACE_UNRESOLVED.
    """
    name = name.strip()
    if not name or len(name) > MAX_NAME:
        raise invalid(f"name must have 1 to {MAX_NAME} characters.", field="name")
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise invalid("name must not contain control characters.", field="name")
    directory, moment = workspaces.locate(project_root), now()
    with write():
        workspaces.ensure(directory, moment)
        return _named(directory.workspace_id, name, moment)


def list_and_seed(*, project_root: str) -> list[Channel]:
    """Return the workspace's channels, oldest first; create `general` when it is missing."""
    directory = workspaces.locate(project_root)
    channels = Channel.objects.filter(workspace_id=directory.workspace_id)
    if not channels.filter(name=DEFAULT_CHANNEL).exists():
        moment = now()
        with write():
            workspaces.ensure(directory, moment)
            _named(directory.workspace_id, DEFAULT_CHANNEL, moment)
    return list(channels.order_by("created_at", "channel_id"))


def _named(workspace_id: str, name: str, moment: datetime) -> tuple[Channel, bool]:
    return Channel.objects.get_or_create(
        workspace_id=workspace_id, name=name, defaults={"channel_id": new_id("chn"), "created_at": moment}
    )
