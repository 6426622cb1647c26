"""Rendering of a catalog's agent as a client's file: its prompt, its model, the tools that it may not use.

What can be expressed depends on the client: docs/how-to/plan-with-a-team.md has the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomlkit
import yaml

from nexus.planning.catalog.capability_map import OUR_TOOLS, tools
from nexus.planning.catalog.model import Agent

PLAIN = re.compile(r"[A-Za-z][\w, -]*")  # needs no quotes in YAML, except for YAML's own words


@dataclass(frozen=True)
class Client:
    """Where a client looks for agents, and its names of the models of the two tiers."""

    project: str  # relative to the project
    user: str  # relative to the user's home
    suffix: str = ".md"
    models: Mapping[str, str] | None = None  # None: an agent uses the model of the session that starts it


CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(".claude/agents", ".claude/agents", models={"high": "opus", "standard": "sonnet"}),
    "codex": Client(".codex/agents", ".codex/agents", suffix=".toml"),
    "gemini": Client(".gemini/agents", ".gemini/agents", models={"high": "pro", "standard": "flash"}),
    "cursor": Client(".cursor/agents", ".cursor/agents"),
    "opencode": Client(".opencode/agents", ".config/opencode/agents"),
}
CODEX_EFFORT = {"high": "high", "standard": "medium"}  # its models' names change, its effort levels do not
GEMINI_TOOLS = (  # Gemini CLI takes a list of allowed tools, and none of forbidden ones
    *("glob", "grep_search", "list_directory", "read_file", "read_many_files", "google_web_search", "web_fetch"),
    *("write_file", "replace", "run_shell_command"),
)


@dataclass(frozen=True)
class Surroundings:
    """What an agent's file says of our server: its tools, and how Codex reaches it (None: its entry is unknown)."""

    operations: Sequence[str]
    server: Mapping[str, Any] | None = None


def render(client: str, agent: Agent, body: str, disallowed: Sequence[str], around: Surroundings) -> str:
    """Return the text of the agent's file."""
    prompt = f"{body.rstrip()}\n\n{_names(client, disallowed)}"
    if client == "codex":
        return _toml(agent, prompt, disallowed, around.server)
    fields: dict[str, Any] = {"description": agent.description}
    if client != "opencode":  # OpenCode takes the agent's name from the file
        fields = {"name": agent.id, **fields}
    if models := CLIENTS[client].models:
        fields["model"] = models[agent.model_tier]
    fields |= _withheld(client, disallowed, around.operations)
    return f"---\n{_yaml(fields)}---\n\n{prompt}"


def _names(client: str, disallowed: Sequence[str]) -> str:
    """Return the part that a neutral prompt leaves open: the client's names of the operations, and what is withheld."""
    name = OUR_TOOLS[client].format("task_list")
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
        all_there_are = [*GEMINI_TOOLS, *map(OUR_TOOLS[client].format, operations)]
        return {"tools": [tool for tool in all_there_are if tool not in disallowed]}
    if client == "cursor":
        return {"model": "inherit", "readonly": _edits_nothing(client, disallowed)}
    return {"mode": "subagent", **({"permission": dict.fromkeys(disallowed, "deny")} if disallowed else {})}


def _edits_nothing(client: str, disallowed: Sequence[str]) -> bool:
    return not set(tools(client, ["file_modification"])).isdisjoint(disallowed)


def _toml(agent: Agent, prompt: str, disallowed: Sequence[str], server: Mapping[str, Any] | None) -> str:
    document = tomlkit.document()
    document["name"] = agent.id
    document["description"] = agent.description
    document["model_reasoning_effort"] = CODEX_EFFORT[agent.model_tier]
    if _edits_nothing("codex", disallowed):
        document["sandbox_mode"] = "read-only"
    document["developer_instructions"] = tomlkit.string(prompt, multiline=True)
    prefix = OUR_TOOLS["codex"].format("")
    if server and (ours := [tool.removeprefix(prefix) for tool in disallowed if tool.startswith(prefix)]):
        document["mcp_servers"] = {"nexus": {**server, "disabled_tools": ours}}
    return tomlkit.dumps(document)


def _yaml(fields: Mapping[str, Any], indent: str = "") -> str:
    """Return fields as YAML that each client's parser reads: a value, or a list or mapping of values below its key."""
    lines = ""
    for key, value in fields.items():
        if isinstance(value, dict):
            lines += f"{indent}{_scalar(key)}:\n{_yaml(value, indent + '  ')}"
        elif isinstance(value, list):
            lines += f"{indent}{_scalar(key)}:\n" + "".join(f"{indent}  - {_scalar(item)}\n" for item in value)
        else:
            lines += f"{indent}{_scalar(key)}: {_scalar(value)}\n"
    return lines


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    """Return a character as it is written between double quotes."""
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08X}"
