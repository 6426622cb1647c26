"""Tool calls of an agent process: what it sent of each so far, as one whole.

An agent tells of a call bit by bit: first often no more than a name, then the input, the paths, what came of it. A
request for permission is such a bit, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from acp.schema import FileEditToolCallContent, ToolCallProgress, ToolCallStart, ToolCallUpdate

Bit = ToolCallStart | ToolCallProgress | ToolCallUpdate

FIELDS = ("kind", "status", "title", "content", "locations", "raw_input", "raw_output")
MOST_PATHS = 100  # of a call, in its entry
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
    awaits_input: bool = False  # it began with an empty input, as those do whose input follows

    def merge(self, bit: Bit) -> None:
        """Take over what an update tells."""
        self.awaits_input = self.awaits_input or bit.raw_input == {}
        self.known = merged(self.known, bit)

    def ask(self, bit: ToolCallUpdate) -> ToolCallUpdate:
        """The call as a request for permission puts it. What the agent says only to ask, such as another title, is no
        news of the call: of that it takes over what was not known."""
        asked = merged(self.known, bit)
        self.known = merged(bit, self.known)
        return asked

    @property
    def tells_enough(self) -> bool:
        """Whether its entry can be written: what it is called with is known, or never told."""
        known = self.known
        told = bool(known.raw_input or known.locations) or known.status not in (None, "pending")
        return told or not self.awaits_input

    def arguments(self) -> Any:
        """What it is called with."""
        return self.known.raw_input or {"locations": self.paths()}

    def paths(self) -> list[str]:
        """The paths that it names."""
        return [location.path for location in (self.known.locations or [])[:MOST_PATHS]]

    def diffs(self) -> list[dict[str, str | None]]:
        """The changes to files that it shows; of a new file, `old` is None."""
        changes = list(_diffs_of(self.known))[:MOST_DIFFS]
        return [{"path": diff.path, "old": diff.old_text, "new": diff.new_text} for diff in changes]


def merged(known: Bit, bit: Bit) -> ToolCallUpdate:
    """What is known with each field that the bit fills. An empty one tells nothing, and `other` is no kind."""
    fields = {name: getattr(known, name) for name in FIELDS}
    news = {name: value for name in FIELDS if (value := getattr(bit, name)) not in (None, [], {}, "")}
    if news.get("kind") == UNKNOWN_KIND and known.kind is not None:
        del news["kind"]
    if news.get("content") and not any(_diffs_of(bit)):
        news["content"] = [*_diffs_of(known), *news["content"]]  # what it changes stays beside what it prints
    return ToolCallUpdate.model_construct(tool_call_id=known.tool_call_id, **{**fields, **news})


def result_of(call: KnownCall, last: Bit) -> str:
    """What a call came to, as text: what its last update brought, else its output, else what it showed before."""
    return _text_of(last) or _raw(call.known.raw_output) or _text_of(call.known)


def _diffs_of(bit: Bit) -> Iterator[FileEditToolCallContent]:
    return (block for block in bit.content or [] if block.type == "diff")


def _text_of(bit: Bit) -> str:
    parts = []
    for block in bit.content or []:
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
