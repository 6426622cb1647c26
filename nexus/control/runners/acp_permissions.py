"""Answers to an agent process's permission requests, as far as its permissions decide them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from acp.schema import ToolCallUpdate

from nexus.control import protected_paths, rules
from nexus.control.config import ControlSettings
from nexus.control.rules import Permissions, Preset
from nexus.control.runners import bus


class Verdict(Enum):
    """The verdict on a request: allowed, refused, or to be asked."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    ASKED = "asked"  # an operator decides


USES = {  # our tools that correspond to a kind of call
    "read": "read_file",
    "search": "grep",
    "edit": "write_file",
    "delete": "write_file",
    "move": "write_file",
    "execute": "run",
}


PATHS = frozenset({"path", "file_path", "filePath", "absolute_path"})  # names of a file in a call's input
# Titles of calls of our tools: Claude's adapters, opencode, Codex, Gemini and Qwen.
TITLES = re.compile(
    rf"(?:mcp__{bus.NAME}__|{bus.NAME}_|mcp\.{bus.NAME}\.|Tool: {bus.NAME}/)[a-z_]+|[a-z_]+ \({bus.NAME} MCP Server\)"
)


@dataclass(frozen=True)
class Judgement:
    """The verdict on a request, and the real paths that it holds for. They are resolved once, so that what is allowed
    is what was judged and shown, even if a symlink changes later."""

    verdict: Verdict
    paths: tuple[str, ...] = ()
    why_not: str = ""  # the reason of a refusal

    def subject(self, call: ToolCallUpdate) -> str:
        """Return what "allow always" holds for: these paths, or else the agent's name for the call."""
        tool = USES.get(call.kind or "")
        return " ".join((tool or call.kind or "other", *(self.paths or [call.title or ""])))


def judge(permissions: Permissions, call: ToolCallUpdate) -> Judgement:
    """Judge a call by the permissions.

    Calls of the bus's tools pass, unless a setting wants them asked about: the bus checks the agent's rights. Otherwise
    the permissions decide what lies within them. An operator is asked about a write below the agent's directory that is
    in none of its write paths; for a trusted agent also about paths elsewhere and the network; and for every agent
    about calls that concern neither files nor commands nor the network. Reads the disk.
    """
    outside = Verdict.ASKED if permissions.preset is Preset.TRUSTED else Verdict.REFUSED
    if is_of_the_bus(call):
        asks = ControlSettings.current().pool_bus_calls == "asked"
        return Judgement(Verdict.ASKED if asks else Verdict.ALLOWED)
    if call.kind == "think":
        return Judgement(Verdict.ALLOWED)
    if call.kind == "fetch":
        return Judgement(outside, why_not="This agent does not have the network's pages.")
    tool = USES.get(call.kind or "")
    if tool is None:
        return Judgement(Verdict.ASKED)
    if not rules.may_use(permissions, tool):
        return Judgement(Verdict.REFUSED, why_not=f"This agent ({permissions.preset}) does not have the tool {tool}.")
    if tool == "run":
        return Judgement(Verdict.ALLOWED)
    try:
        paths = _real_paths(permissions, call)
    except ValueError:
        return Judgement(Verdict.REFUSED, why_not="It names what is no path.")
    if any(protected_paths.is_hidden(path, permissions.cwd) for path in paths):
        return Judgement(Verdict.REFUSED, paths, "It names what is the hub's own, which no agent opens.")
    may = rules.may_write if tool in rules.WRITING else rules.may_read
    if paths and all(may(permissions, path) for path in paths):
        return Judgement(Verdict.ALLOWED, paths)
    below = all(rules.may_read(permissions, path) for path in paths)
    why_not = f"{', '.join(paths)}: outside of the agent's directory, {permissions.cwd}."
    return Judgement(Verdict.ASKED if below else outside, paths, why_not)


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


def _real_paths(permissions: Permissions, call: ToolCallUpdate) -> tuple[str, ...]:
    """Return the real paths that a call names. Raises ValueError for an invalid path."""
    changed = [block.path for block in call.content or [] if block.type == "diff"]
    named = [*(location.path for location in call.locations or []), *changed]
    if not named and call.kind == "read":
        named = list(_paths_in(call.raw_input))
    real = (os.path.realpath(os.path.join(permissions.cwd, path)) for path in named)
    return tuple(dict.fromkeys(real))
