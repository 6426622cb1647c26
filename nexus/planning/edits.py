"""edit-tracker.json: which files were edited in a cycle, how often, and by whom. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

KEPT = 100  # edits that are stored of one file


class Edit(NamedTuple):
    """One edit of a file, with agent and time (ISO 8601) if recorded."""

    agent_id: str | None = None
    at: str | None = None


def counts(content: bytes | None) -> dict[str, int]:
    """Return the number of edits by file; empty for a missing or malformed file.

    Consumers write different forms: `{"path": 3}`, `{"path": {"count": 3}}`, a list of edits, or any of these below one
    key.
    """
    try:
        document = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return {}
    return _counts(document)


def _counts(document: Any) -> dict[str, int]:
    if isinstance(document, list):
        found: dict[str, int] = {}
        for edit in document:
            path = edit.get("file_path") or edit.get("path") or edit.get("file") if isinstance(edit, Mapping) else edit
            if isinstance(path, str):
                many = edit.get("count", 1) if isinstance(edit, Mapping) else 1
                found[path] = found.get(path, 0) + (many if type(many) is int else 1)
        return found
    if not isinstance(document, Mapping):
        return {}
    for wrapped in ("edits", "files"):
        if len(document) == 1 and isinstance(document.get(wrapped), (list, Mapping)):
            return _counts(document[wrapped])
    found = {}
    for path, value in document.items():
        count = value.get("count", value.get("edits")) if isinstance(value, Mapping) else value
        found[path] = len(count) if isinstance(count, list) else count if type(count) is int else 1
    return found


def history(content: bytes | None) -> dict[str, list[Edit]]:
    """Return the latest edits by file. Edits of which only the number is known have neither agent nor time."""
    try:
        document = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        document = {}
    kept = document if isinstance(document, Mapping) else {}
    found = {}
    for path, count in counts(content).items():
        edits = kept.get(path)
        if isinstance(edits, list):
            found[path] = [_edit(each) for each in edits[-KEPT:]]
        else:
            found[path] = [Edit()] * min(count, KEPT)
    return found


def added(content: bytes | None, paths: Iterable[str], agent_id: str, at: str) -> bytes:
    """Return the file's text with one more edit of each path: `{"path": [{"agent_id", "at"}, …]}`."""
    edits = history(content)
    for path in paths:
        edits[path] = [*edits.get(path, []), Edit(agent_id, at)][-KEPT:]
    document = {path: [_entry(each) for each in those] for path, those in edits.items()}
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def _edit(entry: Any) -> Edit:
    if not isinstance(entry, Mapping):
        return Edit()
    agent_id, at = entry.get("agent_id"), entry.get("at")
    return Edit(agent_id if isinstance(agent_id, str) else None, at if isinstance(at, str) else None)


def _entry(edit: Edit) -> dict[str, str]:
    return {name: value for name, value in edit._asdict().items() if value is not None}
