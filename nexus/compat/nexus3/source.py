"""The home of NEXUS3 1.x with its saved sessions. It is read, and never written."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nexus.control.permissions.rules import is_agent_id
from nexus.core.operations.errors import NexusError, invalid

NEWEST = 1  # the newest schema_version of a session that we know
LARGEST = 32 * 2**20  # bytes of one file: it is read whole
NOTHING = "Nothing was imported"
CONFIGURATION, SESSIONS, LAST = "config.json", "sessions", "last-session.json"
ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class Session:
    """A saved session, without its messages."""

    path: Path
    agent_id: str
    created_at: datetime
    modified_at: datetime
    level: str
    cwd: str
    parent: str | None
    disabled_tools: tuple[str, ...]
    model: str | None
    messages: int
    has_clipboard: bool

    @property
    def key(self) -> tuple[str, datetime]:
        """What tells this session from others, also once it was moved or copied."""
        return self.agent_id, self.created_at


class Nexus3Home:
    """A home of NEXUS3."""

    def __init__(self, home: Path) -> None:
        if not home.is_dir():
            raise invalid(f"{NOTHING}: there is no directory {home}. Name the home of NEXUS3, such as ~/.nexus3.")
        self.home = home
        self.left_out = 0  # links, pipes and others that are no files
        self.sessions = self._all_sessions()
        self.has_configuration = (home / CONFIGURATION).is_file()
        if not self.sessions:
            raise invalid(f"{NOTHING}: {home} has no sessions of NEXUS3.")

    def content(self, session: Session) -> Mapping[str, Any]:
        """Return a session whole. Raises VALIDATION_ERROR, also if it changed since it was listed."""
        found = self._read(session.path)
        if found is None or _session(session.path, found) != session:
            raise invalid(f"{NOTHING}: {session.path} was written to meanwhile. Stop NEXUS3, then try again.")
        return found

    def _all_sessions(self) -> list[Session]:
        found: dict[tuple[str, datetime], Session] = {}
        for path in self._files():
            content = self._read(path)
            if content is not None:
                session = _session(path, content)
                found.setdefault(session.key, session)  # the last one is usually also among the named ones
        return sorted(found.values(), key=lambda session: session.key)

    def _files(self) -> Iterator[Path]:
        folder = self.home / SESSIONS
        try:
            paths = sorted(folder.iterdir()) if folder.is_dir() else []
        except OSError as error:
            raise invalid(f"{NOTHING}: {folder} cannot be read: {error.strerror}.") from None
        yield from (path for path in paths if path.suffix == ".json")
        yield self.home / LAST

    def _read(self, path: Path) -> dict[str, Any] | None:
        """Return a JSON object; None if there is no such file. Raises VALIDATION_ERROR."""
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            if path.is_symlink():
                self.left_out += 1
                return None
            raise invalid(f"{NOTHING}: {path} cannot be read: {error.strerror}.") from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            self.left_out += 1
            return None
        with os.fdopen(handle, "rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise invalid(
                f"{NOTHING}: {path} has over {LARGEST // 2**20} MB. Move it out of the folder, then try again."
            )
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise damaged(path) from None
        if not isinstance(found, dict):
            raise damaged(path)
        return found


def _session(path: Path, content: Mapping[str, Any]) -> Session:
    version = content.get("schema_version", 1)
    if type(version) is int and version > NEWEST:
        raise invalid(
            f"{NOTHING}: {path} is of a newer NEXUS3 (schema {version}) than this Nexus knows ({NEWEST}). "
            "Update Nexus, then try again."
        )
    agent_id, messages, cwd = content.get("agent_id"), content.get("messages"), content.get("working_directory")
    tools, parent, model = content.get("disabled_tools") or [], content.get("provenance"), content.get("model_alias")
    sound = (
        isinstance(agent_id, str) and is_agent_id(agent_id) and isinstance(cwd, str) and cwd
        and isinstance(messages, list) and all(map(_is_message, messages))
        and isinstance(tools, list) and all(isinstance(name, str) for name in tools)
    )  # fmt: skip
    if not sound:
        raise damaged(path)
    assert isinstance(agent_id, str) and isinstance(cwd, str) and isinstance(messages, list)
    return Session(
        path=path,
        agent_id=agent_id,
        created_at=_moment(content.get("created_at"), path),
        modified_at=_moment(content.get("modified_at"), path),
        level=str(content.get("permission_level")),
        cwd=cwd,
        parent=parent if isinstance(parent, str) and parent != "user" else None,
        disabled_tools=tuple(tools),
        model=model if isinstance(model, str) else None,
        messages=len(messages),
        has_clipboard=bool(content.get("clipboard_agent_entries")),
    )


def _is_message(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.get("role") in ROLES
        and isinstance(message.get("content") or "", str)
        and isinstance(message.get("tool_calls") or [], list)
        and isinstance(message.get("tool_call_id") or "", str)
    )


def _moment(text: Any, path: Path) -> datetime:
    """Return a time, which NEXUS3 writes as this machine's."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        raise damaged(path) from None


def damaged(path: Path) -> NexusError:
    return invalid(f"{NOTHING}: {path} is damaged, or cut off. Move it out of the folder, or restore it.")
