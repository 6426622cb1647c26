"""Tool calls of an agent process, each put together from its updates.

An agent reports a call bit by bit: often only a name at first, then the input, the paths, the result. A request for
permission is such an update, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from acp.schema import FileEditToolCallContent, ToolCallProgress, ToolCallStart, ToolCallUpdate

Bit = ToolCallStart | ToolCallProgress | ToolCallUpdate

FIELDS = ("kind", "status", "title", "content", "locations", "raw_input", "raw_output")
MOST_PATHS = 100  # stored for a call
MOST_DIFFS = 20
UNKNOWN_KIND = "other"


@dataclass
class KnownCall:
    """One call: our id for it, what is known of it, and what the transcript has of it."""

    id: str
    known: ToolCallUpdate
    said: dict[str, Any] | None = None  # its entry, as it was stored
    is_answered: bool = False
    refused: str = ""  # why Nexus did not allow it
    awaits_input: bool = False  # it began with an empty input, so the input may follow

    def merge(self, update: Bit) -> None:
        """Add the fields of an update."""
        self.awaits_input = self.awaits_input or update.raw_input == {}
        self.known = merged(self.known, update)

    def ask(self, update: ToolCallUpdate) -> ToolCallUpdate:
        """Return the call as a request for permission describes it. Of the request, only fields that were unknown
        become part of the call: what the agent says for the request alone, such as another title, does not change
        it."""
        asked = merged(self.known, update)
        self.known = merged(update, self.known)
        return asked

    @property
    def is_ready(self) -> bool:
        """Whether the call's entry can be written: its arguments are known, or will never come."""
        known = self.known
        has_input = bool(known.raw_input or known.locations) or known.status not in (None, "pending")
        return has_input or not self.awaits_input

    def arguments(self) -> Any:
        """Return the call's arguments."""
        return self.known.raw_input or {"locations": self.paths()}

    def paths(self) -> list[str]:
        """Return the paths that the call names."""
        return [location.path for location in (self.known.locations or [])[:MOST_PATHS]]

    def diffs(self) -> list[dict[str, str | None]]:
        """Return the changes to files that the call shows; for a new file, `old` is None."""
        changes = list(_diffs_of(self.known))[:MOST_DIFFS]
        return [{"path": diff.path, "old": diff.old_text, "new": diff.new_text} for diff in changes]


def merged(known: Bit, update: Bit) -> ToolCallUpdate:
    """Return the known call with each field that the update fills. An empty field and the kind `other` change
    nothing."""
    fields = {name: getattr(known, name) for name in FIELDS}
    news = {name: value for name in FIELDS if (value := getattr(update, name)) not in (None, [], {}, "")}
    if news.get("kind") == UNKNOWN_KIND and known.kind is not None:
        del news["kind"]
    if news.get("content") and not any(_diffs_of(update)):
        news["content"] = [*_diffs_of(known), *news["content"]]  # keep its diffs along with its output
    return ToolCallUpdate.model_construct(tool_call_id=known.tool_call_id, **{**fields, **news})


def result_of(call: KnownCall, last: Bit) -> str:
    """Return a call's result as text: the content of its last update, else its output, else its earlier content."""
    return _text_of(last) or _raw(call.known.raw_output) or _text_of(call.known)


def _diffs_of(update: Bit) -> Iterator[FileEditToolCallContent]:
    return (block for block in update.content or [] if block.type == "diff")


def _text_of(update: Bit) -> str:
    parts = []
    for block in update.content or []:
        if block.type == "content":
            text = getattr(block.content, "text", None)
            parts.append(f"[{block.content.type}]" if text is None else text)
        elif block.type == "diff":
            parts.append(f"{block.path}:\n{block.new_text}")
    return "\n".join(filter(None, parts))


def _raw(output: Any) -> str:
    if output is None:
        return ""
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
