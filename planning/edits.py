"""edit-tracker.json: which files were edited in a cycle, how often, and by whom. Standard library alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def counts(content: bytes | None) -> dict[str, int]:
    """By file, how often it was edited; empty for a file that is missing or says nothing of the kind.

    Consumers differ: `{"path": 3}`, `{"path": {"count": 3}}`, a list of edits, or any of these below one key.
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
        if isinstance(document.get(wrapped), (list, Mapping)):
            return _counts(document[wrapped])
    found = {}
    for path, value in document.items():
        count = value.get("count", value.get("edits")) if isinstance(value, Mapping) else value
        found[path] = len(count) if isinstance(count, list) else count if type(count) is int else 1
    return found
