"""The points of a session at which a harness calls, besides those for mail. Standard library alone.

For each: the client's name for it, its data, and how the agent hears the answer; docs/how-to/hooks.md has the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from nexus.core.harness_events import HarnessEvent

START, MESSAGE = HarnessEvent.SESSION_START, HarnessEvent.USER_MESSAGE
SPAWN, COMPLETE = HarnessEvent.SUBAGENT_SPAWN, HarnessEvent.SUBAGENT_COMPLETE
BEFORE, AFTER = HarnessEvent.PRE_TOOL_USE, HarnessEvent.POST_TOOL_USE
END, COMPACT = HarnessEvent.SESSION_END, HarnessEvent.CONTEXT_COMPACT

# Claude Code, and perhaps Codex, start a session again after a compaction: `source` says so.
_CLAUDE = {
    "SessionStart": START,
    "UserPromptSubmit": MESSAGE,
    "SubagentStart": SPAWN,
    "SubagentStop": COMPLETE,
    "PreToolUse": BEFORE,
    "PostToolUse": AFTER,
}
POINTS: Mapping[str, Mapping[str, HarnessEvent]] = {
    "claude-code": {**_CLAUDE, "PostToolUseFailure": AFTER, "SessionEnd": END},
    "codex": {**_CLAUDE, "PostCompact": COMPACT},
    "gemini": {
        "SessionStart": START,
        "BeforeAgent": MESSAGE,
        "BeforeTool": BEFORE,
        "AfterTool": AFTER,
        "PreCompress": COMPACT,
        "SessionEnd": END,
    },
    "cursor": {
        "sessionStart": START,
        "beforeSubmitPrompt": MESSAGE,
        "subagentStart": SPAWN,
        "subagentStop": COMPLETE,
        "preToolUse": BEFORE,
        "postToolUse": AFTER,
        "postToolUseFailure": AFTER,
        "preCompact": COMPACT,
        "sessionEnd": END,
    },
    "text": _CLAUDE,
}
MATCHED = frozenset({BEFORE, AFTER})  # entries for these have a matcher of tools: all of them
UNHEARD = frozenset({COMPLETE, END})  # no client shows its agent what is said here
FILES = ("file_path", "notebook_path", "path", "target_file")  # arguments of tools that name a file
PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+)$", re.MULTILINE)  # in apply_patch's text
HEAR_BEFORE = ("claude-code", "codex", "text")  # clients whose agents hear what is said before a tool is used
MOST_FILES = 200  # of one call


def point(client: str, name: str | None, payload: Mapping[str, Any]) -> HarnessEvent | None:
    """Return the event for a client's own name; None for one that is not handled."""
    event = POINTS[client].get(name or "")
    return COMPACT if event is START and payload.get("source") == "compact" else event


def hears(client: str, name: str | None, event: HarnessEvent) -> bool:
    """Return whether the agent hears what is said at an event with this name in the client."""
    if event in UNHEARD or (event is COMPACT and name not in ("SessionStart", "sessionStart")):
        return False
    if event is BEFORE and client not in HEAR_BEFORE:
        return False
    return not (client == "cursor" and event is SPAWN) and name != "postToolUseFailure"


def fields(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a payload that a Happening holds."""
    asked = payload.get("tool_input")
    return {
        "prompt": _text(payload, "prompt"),
        "goes_on": payload.get("source") == "resume",
        "agent_type": _text(payload, "agent_type", "subagent_type"),
        "agent_id": _text(payload, "agent_id", "subagent_id"),
        "assignment": _text(payload, "task", "description"),
        "message": _text(payload, "last_assistant_message", "summary"),
        "tool": _text(payload, "tool_name"),
        "files": _files(asked if isinstance(asked, Mapping) else {}),
        "failed": _failed(payload),
    }


def _text(payload: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := payload.get(name), str) and value), "")


def _failed(payload: Mapping[str, Any]) -> bool:
    failing = ("PostToolUseFailure", "postToolUseFailure")
    if payload.get("hook_event_name") in failing or payload.get("status") in ("error", "aborted"):
        return True
    response = payload.get("tool_response")
    return isinstance(response, Mapping) and bool(response.get("error") or response.get("is_error"))


def _files(asked: Mapping[str, Any]) -> tuple[str, ...]:
    named = [value for name in FILES if isinstance(value := asked.get(name), str) and value]
    patch = next((value for name in ("command", "input", "patch") if isinstance(value := asked.get(name), str)), "")
    patched = PATCHED.findall(patch) if patch.startswith("*** Begin Patch") else []
    return tuple(dict.fromkeys(os.path.normpath(path.strip()) for path in [*named, *patched][:MOST_FILES]))
