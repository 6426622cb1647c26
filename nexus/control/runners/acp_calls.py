"""Tool calls of an agent process: each put together from its updates, and whether the agent's permissions allow it.

An agent reports a call bit by bit: often only a name at first, then the input, the paths, the result. A request for
permission is such an update, too.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from acp.schema import FileEditToolCallContent, ToolCallProgress, ToolCallStart, ToolCallUpdate

from nexus.control.permissions import protected_paths, rules
from nexus.control.permissions.rules import Action, Kind, Permissions, Preset, Verdict
from nexus.control.runners import bus

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
    by_rule: str = ""  # the rule that decided, in words
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


USES = {  # our tools that correspond to a kind of call
    "read": "read_file",
    "search": "grep",
    "edit": "write_file",
    "delete": "write_file",
    "move": "write_file",
    "execute": "run",
}
KINDS = {
    "read": Kind.READ,
    "search": Kind.READ,
    "edit": Kind.WRITE,
    "delete": Kind.WRITE,
    "move": Kind.WRITE,
    "execute": Kind.RUN,
    "fetch": Kind.NETWORK,
}
DEEP = frozenset(("search", "delete", "move"))  # they concern what lies below a path

PATHS = frozenset({"path", "file_path", "filePath", "absolute_path"})  # names of a file in a call's input
# Titles of calls of our tools: Claude's adapters, opencode, Codex, Gemini and Qwen.
TITLES = re.compile(
    rf"(?:mcp__{bus.NAME}__|{bus.NAME}_|mcp\.{bus.NAME}\.|Tool: {bus.NAME}/)[a-z_]+|[a-z_]+ \({bus.NAME} MCP Server\)"
)


@dataclass(frozen=True)
class Judgement:
    """The ceiling's verdict on a request, and the action that it holds for. Its paths are resolved once, so that what
    is allowed is what was judged and shown, even if a symlink changes later."""

    verdict: Verdict
    action: Action
    why_not: str = ""  # the reason of a refusal


def action_of(permissions: Permissions, call: ToolCallUpdate) -> Action:
    """Return what a call wants to do. Raises ValueError for an invalid path."""
    kind, title = KINDS.get(call.kind or "", Kind.OTHER), call.title or ""
    if kind is Kind.OTHER:
        return Action(kind, f"{call.kind or 'other'} {title}")
    if kind is Kind.RUN:
        command = _command(call.raw_input)
        return Action(kind, title if command is None else command, cwd=permissions.cwd, is_known=command is not None)
    if kind is Kind.NETWORK:
        return Action(kind, _text(call.raw_input, "url", "uri") or title)
    named = list(dict.fromkeys(os.path.join(permissions.cwd, path) for path in _named_paths(call)))
    resolved, named = list(dict.fromkeys(map(os.path.realpath, named))), list(map(os.path.normpath, named))
    return Action(kind, title, tuple(resolved), tuple(named), permissions.cwd, is_deep=(call.kind in DEEP))


def _command(given: Any) -> str | None:
    """Return the line of shell in the input of a call; None if it names none."""
    words = given.get("command") if isinstance(given, dict) else None
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        return shlex.join(words)
    return _text(given, "command", "cmd") or None


def _text(given: Any, *names: str) -> str:
    found = (given.get(name) for name in names) if isinstance(given, dict) else ()
    return next((text for text in found if isinstance(text, str)), "")


def judge(permissions: Permissions, call: ToolCallUpdate) -> Judgement:
    """Judge a call by the permissions.

    Calls of the bus's tools pass: the bus checks the agent's rights. Otherwise the permissions decide what lies within
    them. An operator is asked about a write below the agent's directory that is in none of its write paths; for a
    trusted agent also about paths elsewhere and the network; and for every agent about calls that concern neither files
    nor commands nor the network.
    """
    outside = Verdict.ASKED if permissions.preset is Preset.TRUSTED else Verdict.REFUSED
    try:
        action = action_of(permissions, call)
    except ValueError:
        return Judgement(Verdict.REFUSED, Action(Kind.OTHER), "It names what is no path.")
    judged = partial(Judgement, action=action)
    if is_of_the_bus(call) or call.kind == "think":
        return judged(Verdict.ALLOWED)
    if call.kind == "fetch":
        return judged(outside, why_not="This agent does not have the network's pages.")
    tool = USES.get(call.kind or "")
    if tool is None:
        return judged(Verdict.ASKED)
    if not rules.may_use(permissions, tool):
        return judged(Verdict.REFUSED, why_not=f"This agent ({permissions.preset}) does not have the tool {tool}.")
    if tool == "run":
        return judged(Verdict.ALLOWED)
    paths = action.paths
    if any(protected_paths.is_hidden(path, permissions.cwd) for path in paths):
        return judged(Verdict.REFUSED, why_not="It names what is the hub's own, which no agent opens.")
    if tool in rules.WRITING and any(rules.is_gits(path, permissions.write_paths) for path in paths):
        return judged(Verdict.REFUSED, why_not="It names what is git's own, which git may run.")
    may = rules.may_write if tool in rules.WRITING else rules.may_read
    if paths and all(may(permissions, path) for path in paths):
        return judged(Verdict.ALLOWED)
    below = all(rules.may_read(permissions, path) for path in paths)
    why_not = f"{', '.join(paths)}: outside of the agent's directory, {permissions.cwd}."
    return judged(Verdict.ASKED if below else outside, why_not=why_not)


def is_of_the_bus(call: ToolCallUpdate) -> bool:
    """Return whether a call is to a tool of the MCP server that Nexus gave the agent.

    The title of a command is written by the model, so it proves nothing. The input does, if it names a server and a
    tool, and nothing that runs.
    """
    given = call.raw_input
    if isinstance(given, dict) and {"server", "tool"} <= given.keys() <= {"server", "tool", "arguments"}:
        return bool(given["server"] == bus.NAME)
    return call.kind in (None, "other") and TITLES.fullmatch(call.title or "") is not None


def _paths_in(given: Any) -> Iterator[str]:
    """Yield the paths in the input of a call that names them nowhere else, as cline's does, and values that look like
    paths."""
    left = [given]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += [{"path": each} if isinstance(each, str) else each for each in value]
        elif isinstance(value, dict):
            left += [each for each in value.values() if isinstance(each, dict | list)]
            texts = ((name, each) for name, each in value.items() if isinstance(each, str))
            yield from (each for name, each in texts if name in PATHS or each.startswith(("/", "~")) or ".." in each)


def _named_paths(call: ToolCallUpdate) -> list[str]:
    """Return the paths that a call names."""
    changed = [block.path for block in call.content or [] if block.type == "diff"]
    named = [*(location.path for location in call.locations or []), *changed]
    return named or (list(_paths_in(call.raw_input)) if call.kind == "read" else [])
