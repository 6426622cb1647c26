"""A session's records by hooks: its agents, the tools that they used, the files that they edited.

Standard library only. The caller of a function that changes a file must hold the directory's lock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

from nexus.core import clock
from nexus.core.clock import iso_milliseconds
from nexus.core.coding_clients import edits_files
from nexus.core.harness_events import HookEvent
from nexus.core.operations.errors import NexusError
from nexus.planning import edits
from nexus.planning.directory import AGENTS, EDITS, LOG, NAME, NOTES, Directory, PlanningCode

RUNNING, COMPLETED = "running", "completed"
LEAD = "lead"  # the agent when no subagent acts
LONGEST_LOG = 8 << 20  # bytes
LONGEST_MESSAGE = 2_000  # characters
MOST_AGENTS, MOST_NOTES = 500, 20

Agent = dict[str, Any]  # an entry of agent-tracker.json


def now() -> str:
    """Return the time as the files contain it."""
    return iso_milliseconds(clock.now())


def write(directory: Directory, path: str, document: Any) -> None:
    """Write a document of a session, without a sync to disk."""
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    directory.write(path, text.encode("utf-8", "replace"), durable=False)


# The agents


def agents(directory: Directory) -> list[Agent]:
    """Return the subagents of the session. Raises STATE_FILE_INVALID."""
    content = directory.read(AGENTS)
    try:
        entries = json.loads(content or b"[]")
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, list) or not all(map(_is_sound, entries)):
        raise NexusError(
            PlanningCode.STATE_FILE_INVALID,
            f".nexus/{AGENTS} breaks its schema. It was left as it is; correct it, or move it away.",
            {"file": f".nexus/{AGENTS}"},
        )
    return entries


def _is_sound(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), str) for name in ("agent_type", "agent_id", "started_at", "status"))
        and type(entry.get("resume_count")) is int
    )


def name_for(entries: Sequence[Agent], agent_type: str) -> str:
    """Return a name for a subagent that its client does not name. It is not empty, unlike the instance of most
    tasks."""
    return f"{agent_type}-{len(entries) + 1}"


def started(directory: Directory, agent_type: str, agent_id: str) -> None:
    """Record that a subagent started or was resumed."""
    entries = agents(directory)
    known = next((entry for entry in entries if entry["agent_id"] == agent_id), None)
    if known is None:
        entry = {"agent_type": agent_type, "agent_id": agent_id, "started_at": now(), "resume_count": 0}
        entries = [*entries, {**entry, "status": RUNNING}][-MOST_AGENTS:]
    else:
        known.update(resume_count=known["resume_count"] + 1, status=RUNNING, last_resumed_at=now())
    write(directory, AGENTS, entries)


def ended(directory: Directory, agent_type: str, agent_id: str, message: str, client: str) -> Agent:
    """Record that a subagent ended; return its entry. Without an id, it is the latest of its type."""
    entries = agents(directory)
    named = [entry for entry in entries if entry["agent_id"] == agent_id]
    of_type = [entry for entry in entries if entry["agent_type"] == agent_type and entry["status"] == RUNNING]
    if named or (of_type and not agent_id):
        entry = (named or of_type)[-1]
    else:
        who = agent_id or name_for(entries, agent_type)
        entry = {"agent_type": agent_type, "agent_id": who, "started_at": now(), "resume_count": 0}
        entries = [*entries, entry][-MOST_AGENTS:]
    entry.update(status=COMPLETED, stopped_at=now())
    if message:
        entry["last_message"] = message[:LONGEST_MESSAGE]
    if touched := _touched(directory, entry["agent_id"], client):
        entry["files_touched"] = touched
    write(directory, AGENTS, entries)
    return entry


# Tools and files


def inside(root: str, files: Iterable[str]) -> list[str]:
    """Return the files in the project as relative paths, without Nexus's own."""
    found = (os.path.relpath(os.path.join(root, file), root) for file in files)  # plain text
    return [path for path in found if path.split("/")[0] not in ("..", ".", NAME)]


def used(directory: Directory, what: HookEvent, agent_id: str) -> None:
    """Log an agent's use of a tool, and record what it edited."""
    paths = inside(directory.root, what.files)
    line = {"ts": now(), "agent_id": agent_id, "tool": what.tool, "status": "error" if what.failed else "ok"}
    lines = [{**line, "file": path} for path in paths] or [line]
    text = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)
    if directory.size(LOG) >= LONGEST_LOG:
        older = directory.read(LOG) or b""
        directory.write(LOG, older[len(older) // 2 :].partition(b"\n")[2], durable=False)
    directory.append(LOG, text.encode("utf-8", "replace"))
    if paths and what.edits and not what.failed:
        directory.write(EDITS, edits.added(directory.read(EDITS), paths, agent_id, now()), durable=False)


def _touched(directory: Directory, agent_id: str, client: str) -> list[str]:
    """Return the files that an agent edited, from the log."""
    found: dict[str, None] = {}
    for line in (directory.read(LOG) or b"").splitlines():
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("agent_id") == agent_id and entry.get("status") == "ok":
            tool, file = entry.get("tool"), entry.get("file")
            if isinstance(file, str) and isinstance(tool, str) and edits_files(client, tool):
                found[file] = None
    return list(found)


# Notes for the main agent


def leave_note(directory: Directory, text: str) -> None:
    """Store a note for the main agent."""
    directory.append(NOTES, (json.dumps(text) + "\n").encode())


def take_notes(directory: Directory) -> list[str]:
    """Return and delete the stored notes."""
    lines = (directory.read(NOTES) or b"").splitlines()
    directory.remove(NOTES)
    notes = []
    for line in lines[-MOST_NOTES:]:
        try:
            note = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(note, str):
            notes.append(note)
    return notes
