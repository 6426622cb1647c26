"""The changes that bring our files among a person's up to date, and the text of an agent's file.

Each file of ours has a line with the hash of the rest. A file without that line belongs to somebody else; one with
another hash was changed by somebody. Both are left as they are.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

from nexus.core import foreign_files
from nexus.core.coding_clients import SUBAGENTS, TOOLS
from nexus.core.files import Change
from nexus.core.operations.errors import Code, NexusError
from nexus.planning.catalog.bundled import Agent
from nexus.planning.catalog.capability_map import tools

MARK = re.compile(r"\A(---\n)?# Written by `nexus planning install` \(sha256:([0-9a-f]{64})\)\n")
LARGEST = 2**20  # bytes of a file that are read


@dataclass(frozen=True)
class Plan:
    """The changes to make in a directory of agents."""

    changes: tuple[Change, ...]
    unchanged: tuple[Path, ...]
    left: Mapping[Path, str]  # each with the reason


def marked(text: str) -> str:
    """Return a text with the line that marks it as ours."""
    text = _with_plain_ends(text)
    head = "---\n" if text.startswith("---\n") else ""
    return f"{head}# Written by `nexus planning install` (sha256:{_hash(text)})\n{text.removeprefix(head)}"


def _whose(text: str) -> str | None:
    """Return why a text must not be changed; None for one of ours."""
    mark = MARK.match(text)
    if mark is None:
        return "it was not written by Nexus: move it away, or use another name"
    rest = (mark[1] or "") + text[mark.end() :]
    return None if _hash(rest) == mark[2] else "it was changed by hand since it was written"


def _with_plain_ends(text: str) -> str:
    """Return a text with Unix line ends: version control may check out others."""
    return text.replace("\r\n", "\n")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plan(directory: Path, suffix: str, wanted: Mapping[str, str]) -> Plan:
    """Return the changes that bring our files in a directory to `wanted`, texts by file name; our other files are
    removed.

    Raises CONFIG_ERROR for one that is not a directory or behind a link, and for one that cannot be read.
    """
    there: list[str] = []
    try:
        with contextlib.suppress(FileNotFoundError), foreign_files.directory(str(directory)) as opened:
            there = [name for name in os.listdir(opened) if name.endswith(suffix)]  # noqa: PTH208
        found = {name: _read(directory / name) for name in {*there, *wanted}}
    except (NotADirectoryError, FileExistsError):
        _refuse(directory, "is no directory, or is behind a link, and no link of a project is followed")
    except OSError as error:
        _refuse(directory, f"cannot be read ({type(error).__name__})")
    changes: list[Change] = []
    unchanged: list[Path] = []
    left: dict[Path, str] = {}
    for name, before in sorted(found.items()):
        file, after, text = directory / name, wanted.get(name), _with_plain_ends(before or "")
        why = None if before is None else _whose(text)
        if why:
            if after is not None or MARK.match(text):
                left[file] = why
        elif text == after:
            unchanged.append(file)
        else:
            changes.append(Change(file, before, after))
    return Plan(tuple(changes), tuple(unchanged), left)


def _read(file: Path) -> str | None:
    """Return the text of a file; for one that is not regular, a text that is never ours; None where there is none."""
    try:
        return foreign_files.read_file(str(file), largest=LARGEST).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.EFBIG):
            return ""
        raise


def _refuse(path: Path, why: str) -> NoReturn:
    raise NexusError(Code.CONFIG_ERROR, f"{path} {why}. Nothing was changed.", {"file": str(path)})


ONE_LINE = 10_000  # characters, in which a client's own parser may want a value
CODEX_EFFORT = {"high": "high", "standard": "medium"}  # its models' names change, its effort levels do not
GEMINI_TOOLS = (  # Gemini CLI takes a list of allowed tools, and none of forbidden ones
    *("glob", "grep_search", "list_directory", "read_file", "read_many_files", "google_web_search", "web_fetch"),
    *("write_file", "replace", "run_shell_command"),
)


def render(client: str, agent: Agent, disallowed: Sequence[str], operations: Sequence[str]) -> str:
    """Return the text of the agent's file. `operations` are the tools of our server."""
    prompt = f"{agent.body.rstrip()}\n\n{_names(client, disallowed)}"
    if client == "codex":
        return _toml(agent, prompt, disallowed)
    fields: dict[str, Any] = {"description": agent.description}
    if client != "opencode":  # OpenCode takes the agent's name from the file
        fields = {"name": agent.id, **fields}
    if models := SUBAGENTS[client].models:
        fields["model"] = models[agent.model_tier]
    fields |= _withheld(client, disallowed, operations)
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, width=ONE_LINE)}---\n\n{prompt}"


def _names(client: str, disallowed: Sequence[str]) -> str:
    """Return the part that a neutral prompt leaves open: the client's names of the operations, and what is withheld."""
    name = TOOLS[client].ours.format("task_list")
    called = "" if client == "cursor" else f"; `task_list` is the tool `{name}` here, and so on"
    withheld = f"You may not use: {', '.join(f'`{tool}`' for tool in disallowed)}.\n" if disallowed else ""
    return (
        "## Tools\n\n"
        f"The operations that are named above are tools of the MCP server `nexus`{called}. Each takes `project_root`, "
        f"the absolute path of the project.\n{withheld}"
    )


def _withheld(client: str, disallowed: Sequence[str], operations: Iterable[str]) -> dict[str, Any]:
    """Return the field that forbids tools to an agent."""
    if client == "claude-code":
        return {"disallowedTools": ", ".join(disallowed)} if disallowed else {}
    if client == "gemini":
        all_there_are = [*GEMINI_TOOLS, *map(TOOLS[client].ours.format, operations)]
        return {"tools": [tool for tool in all_there_are if tool not in disallowed]}
    if client == "cursor":
        return {"model": "inherit", "readonly": _edits_nothing(client, disallowed)}
    return {"mode": "subagent", **({"permission": dict.fromkeys(disallowed, "deny")} if disallowed else {})}


def _edits_nothing(client: str, disallowed: Sequence[str]) -> bool:
    return not set(tools(client, ["file_modification"])).isdisjoint(disallowed)


def _toml(agent: Agent, prompt: str, disallowed: Sequence[str]) -> str:
    fields = {
        "name": agent.id,
        "description": agent.description,
        "model_reasoning_effort": CODEX_EFFORT[agent.model_tier],
        **({"sandbox_mode": "read-only"} if _edits_nothing("codex", disallowed) else {}),
    }
    lines = [f"{name} = {json.dumps(text, ensure_ascii=False)}\n" for name, text in fields.items()]
    quoted = prompt.replace("\\", "\\\\").replace('"', '\\"')
    return f'''{"".join(lines)}developer_instructions = """{quoted}"""\n'''
