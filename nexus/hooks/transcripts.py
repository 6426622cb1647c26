"""The tokens that a session used, as the file tells them that its client writes. Standard library alone.

Of the file, which may be huge, the end is read. A line that tells no tokens, or none of the client's, is passed over.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Any

from nexus.core import foreign_files

LARGEST_END = 8 << 20  # bytes


def tokens_since(path: str, moment: float) -> int:
    """Return the tokens since a moment (unix time), without those that the model had cached; 0 where the file cannot be
    read. Claude Code repeats a request with each part of its answer: the last one counts."""
    try:
        with foreign_files.open_file(os.path.realpath(path)) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - LARGEST_END, 0))
            end = file.read(LARGEST_END)
    except (OSError, ValueError):
        return 0
    used: dict[str | int, int] = {}
    for number, line in enumerate(end.split(b"\n")):
        if b"oken" in line:
            try:
                record = json.loads(line)
                if datetime.fromisoformat(record["timestamp"]).timestamp() >= moment:
                    request, tokens = _used(record)
                    used[request or number] = max(int(tokens), 0)
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                continue
    return sum(used.values())


def _used(record: Any) -> tuple[str, int]:
    """Return the id of a request, where it has one, and its tokens. Raises ValueError for any other record."""
    match record:
        case {"usageMetadata": dict(used)}:  # Qwen Code
            return "", used["promptTokenCount"] - used.get("cachedContentTokenCount", 0) + used["candidatesTokenCount"]
        case {"message": {"id": str(request), "usage": dict(used)}}:  # Claude Code
            return request, used["input_tokens"] + used.get("cache_creation_input_tokens", 0) + used["output_tokens"]
        case {"payload": {"info": {"last_token_usage": dict(used)}}}:  # Codex
            return "", used["input_tokens"] - used.get("cached_input_tokens", 0) + used["output_tokens"]
    raise ValueError(record)
