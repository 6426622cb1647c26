"""shared.md: a readable snapshot of one workspace. Nexus writes it and never reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from coordination.config import CoordinationSettings
from coordination.errors import CoordinationCode
from coordination.models import Event, Session, SessionStatus
from coordination.services import workspaces
from nexus.core import files
from nexus.core.clock import iso
from nexus.core.config import CoreSettings
from nexus.core.database.store import store
from nexus.core.operations.errors import NexusError, invalid


class Rendered(NamedTuple):
    """The path of the file, its size in bytes and its number of sections."""

    path: Path
    size: int
    sections: int


Section = Callable[[str, int], list[str]]  # (workspace_id, limit_events) → lines
SECTIONS: dict[int, tuple[str, Section]] = {}


def section(position: int, title: str) -> Callable[[Section], Section]:
    """Register a section at this position. Each app renders its own data."""

    def register(lines: Section) -> Section:
        SECTIONS[position] = (title, lines)
        return lines

    return register


def render(*, workspace_id: str, limit_events: int) -> Rendered:
    """Write the workspace's shared.md atomically; the same state always gives the same bytes.

    Raises VALIDATION_ERROR (id not 64 lowercase hex digits, limit out of range), NOT_FOUND, RENDER_ERROR.
    """
    if not re.fullmatch(r"[0-9a-f]{64}", workspace_id):
        raise invalid("workspace_id must be 64 lowercase hex digits; workspace_resolve gives it.", field="workspace_id")
    ceiling = CoordinationSettings.current().max_shared_md_events
    if not 1 <= limit_events <= ceiling:
        raise invalid(f"limit_events must be from 1 to {ceiling}.", field="limit_events")
    with store().snapshot():
        workspace = workspaces.require(workspace_id)
        text = f"# {one_line(str(workspace))}\n\n`{one_line(workspace.root_realpath)}`\n"
        for _, (title, lines) in sorted(SECTIONS.items()):
            body = "\n".join(lines(workspace_id, limit_events)) or "_None._"
            text += f"\n## {title}\n\n{body}\n"
    path = CoreSettings.current().home / "workspaces" / workspace_id / "shared.md"
    _replace(path, text.encode())
    return Rendered(path, len(text.encode()), len(SECTIONS))


def one_line(text: str | None) -> str:
    """Return untrusted text as one line of Markdown that is shown literally."""
    printable = "".join(character if character.isprintable() else " " for character in text or "-")
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", printable[:200])


@section(1, "Agents and active sessions")
def _sessions(workspace_id: str, limit_events: int) -> list[str]:
    rows = Session.objects.filter(workspace_id=workspace_id, status=SessionStatus.ACTIVE).select_related("agent")
    return [
        f"- {one_line(row.agent_id)} (role: {one_line(row.agent.role)}), session {row.session_id}, "
        f"last heartbeat {iso(row.last_heartbeat_at)}"
        for row in rows.order_by("agent_id", "session_id")
    ]


@section(4, "Recent events")
def _events(workspace_id: str, limit_events: int) -> list[str]:
    rows = Event.objects.filter(workspace_id=workspace_id).order_by("-event_id")[:limit_events]
    return [
        f"- {row.event_id} {iso(row.created_at)} {one_line(row.type)} by {one_line(row.actor_agent_id)}" for row in rows
    ]


def _replace(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.replace(path, content)
    except OSError as error:
        raise NexusError(
            CoordinationCode.RENDER_ERROR, f"shared.md could not be written: {error.strerror}.", {"path": str(path)}
        ) from None
