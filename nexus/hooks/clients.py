"""The coding clients Nexus can configure: where each keeps its MCP servers and hooks, and in which form."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nexus.core.harness_events import EDITING, HarnessEvent
from nexus.core.operations.errors import invalid
from nexus.hooks.harness import NAMES, PLANNING
from nexus.hooks.points import MATCHED, POINTS

SERVER = "nexus"  # the name of the entry in every client
PROGRAMS = {"nexus", "nexus_site", "manage"}  # what starts the `nexus` command
KEY_VARIABLE = "NEXUS_API_KEY"  # how an agent's key reaches `runmcp`
DEFAULT_COMMAND = (SERVER, "runmcp")
HOOK_TIMEOUT = 10  # seconds until the harness gives up; the hook does so earlier
APP_DATA = "{app_data}"  # where the system keeps an application's data of one user

LOCAL_OR_HTTP = ("stdio", "http")

Format = Literal["json", "toml"]


@dataclass(frozen=True)
class Client:
    """One client's conventions; paths are relative to the project, or start with `~` or APP_DATA."""

    title: str
    program: str | None = None  # what people start
    directory: str | None = None  # what the client makes for itself on a machine where it was started
    servers: str = "mcpServers"  # the object that holds the entries
    user_file: str | None = None
    project_file: str | None = None
    format: Format = "json"
    types: tuple[str, str] | None = None  # how an entry names its transport: of a local server, of a remote one
    joined: bool = False  # `command` holds the arguments, too
    environment: str = "env"  # the field of a local server's variables
    url: str | None = "url"  # the field of a remote server; None where there are only local ones
    headers: str = "headers"
    variable: str | None = None  # how a header refers to an environment variable
    bearer_variable: str | None = None  # the field that names the variable of a bearer token
    user_hooks: str | None = None
    project_hooks: str | None = None
    skill: str | None = None  # where it looks for Nexus's skill, if not where most clients do
    guide: str = "AGENTS.md"  # the file of the project that its agent reads first
    first: str = "Start it anew."  # what a person does before the client takes up what was written

    @property
    def can_name_a_variable(self) -> bool:
        """Whether a remote server's key may come from the environment."""
        return self.variable is not None or self.bearer_variable is not None


CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        "Claude Code",
        program="claude",
        directory="~/.claude",
        user_file="~/.claude.json",
        project_file=".mcp.json",
        types=LOCAL_OR_HTTP,
        variable="${%s}",
        user_hooks="~/.claude/settings.json",
        project_hooks=".claude/settings.local.json",  # the command's path is this machine's: not for the repository
        skill=".claude/skills/nexus/SKILL.md",
        guide="CLAUDE.md",
        first="Start `claude` here anew and allow the server nexus.",
    ),
    "claude-desktop": Client(
        "Claude Desktop",
        directory=f"{APP_DATA}/Claude",
        user_file=f"{APP_DATA}/Claude/claude_desktop_config.json",
        url=None,
        first="Quit and start Claude Desktop.",
    ),
    "cursor": Client(
        "Cursor",
        program="cursor",
        directory="~/.cursor",
        user_file="~/.cursor/mcp.json",
        project_file=".cursor/mcp.json",
        variable="${env:%s}",
        user_hooks="~/.cursor/hooks.json",
        project_hooks=".cursor/hooks.json",
        first="Switch nexus on in Cursor's settings, under MCP.",
    ),
    "vscode": Client(
        "VS Code",
        program="code",
        directory=f"{APP_DATA}/Code/User",
        servers="servers",
        user_file=f"{APP_DATA}/Code/User/mcp.json",
        project_file=".vscode/mcp.json",
        types=LOCAL_OR_HTTP,
        variable="${env:%s}",
        first="Open .vscode/mcp.json in VS Code and start nexus there.",
    ),
    "windsurf": Client(
        "Windsurf",
        program="windsurf",
        directory="~/.codeium/windsurf",
        user_file="~/.codeium/windsurf/mcp_config.json",
        url="serverUrl",
        variable="${env:%s}",
        first="Refresh the MCP servers in Windsurf's settings.",
    ),
    "codex": Client(
        "Codex",
        program="codex",
        directory="~/.codex",
        servers="mcp_servers",
        user_file="~/.codex/config.toml",
        project_file=".codex/config.toml",
        format="toml",
        headers="http_headers",
        bearer_variable="bearer_token_env_var",
        user_hooks="~/.codex/hooks.json",
        project_hooks=".codex/hooks.json",
        first="Start `codex` here anew, trust the project, and review the hooks with /hooks.",
    ),
    "gemini": Client(
        "Gemini CLI",
        program="gemini",
        directory="~/.gemini",
        user_file="~/.gemini/settings.json",
        project_file=".gemini/settings.json",
        url="httpUrl",
        variable="${%s}",
        user_hooks="~/.gemini/settings.json",
        project_hooks=".gemini/settings.json",
        first="Start `gemini` here anew.",
    ),
    "qwen": Client(
        "Qwen Code",
        program="qwen",
        directory="~/.qwen",
        user_file="~/.qwen/settings.json",
        project_file=".qwen/settings.json",
        url="httpUrl",
        variable="${%s}",
        first="Start `qwen` here anew.",
    ),
    "opencode": Client(
        "opencode",
        program="opencode",
        directory="~/.config/opencode",
        servers="mcp",
        user_file="~/.config/opencode/opencode.jsonc",
        project_file="opencode.json",
        types=("local", "remote"),
        joined=True,
        environment="environment",
        variable="{env:%s}",
        first="Start `opencode` here anew.",
    ),
    "cline": Client(
        "Cline",
        program="cline",
        directory="~/.cline",
        user_file="~/.cline/data/settings/cline_mcp_settings.json",
        types=("stdio", "streamableHttp"),
    ),
    "zed": Client(
        "Zed",
        program="zed",
        directory="~/.config/zed",
        servers="context_servers",
        user_file="~/.config/zed/settings.json",
        project_file=".zed/settings.json",
    ),
    "json": Client("any other client", types=LOCAL_OR_HTTP),
}
HOOKED = tuple(name for name, client in CLIENTS.items() if client.user_hooks)


def found() -> list[str]:
    """The clients on this machine: those that are on the PATH, or were started once."""
    return [
        name
        for name, client in CLIENTS.items()
        if (client.program and shutil.which(client.program))
        or (client.directory and locate(client.directory, Path.home()).is_dir())
    ]


class Snippet(NamedTuple):
    """A configuration ready to paste: its format, its text, and the file it belongs in (None: see the client)."""

    format: Format
    text: str
    file: str | None


def snippet(
    client: str,
    *,
    url: str | None = None,
    key: str | None = None,
    key_variable: str | None = None,
    command: Sequence[str] | None = None,
) -> Snippet:
    """The configuration that connects `client`: over HTTP when `url` is given, else by starting `command`.

    Raises VALIDATION_ERROR as `server_entry` does.
    """
    known = CLIENTS[client]
    entry = server_entry(client, url=url, key=key, key_variable=key_variable, command=command)
    document = {known.servers: {SERVER: entry}}
    return Snippet(known.format, dump(known.format, document), known.project_file or known.user_file)


def server_entry(
    client: str,
    *,
    url: str | None = None,
    key: str | None = None,
    key_variable: str | None = None,
    command: Sequence[str] | None = None,
) -> dict[str, Any]:
    """One MCP server in the client's form. `key` is an agent's API key, `key_variable` an environment variable with it.

    Raises VALIDATION_ERROR for a remote server in a client that only starts local ones, and for a variable where the
    client cannot refer to one.
    """
    known = CLIENTS[client]
    if url is None:
        program, *arguments = command or DEFAULT_COMMAND
        local: dict[str, Any] = {"type": known.types[0]} if known.types else {}
        local |= {"command": [program, *arguments]} if known.joined else {"command": program, "args": arguments}
        return {**local, known.environment: {KEY_VARIABLE: key}} if key else local
    if known.url is None:
        raise invalid(f"{known.title} starts local servers only; leave the URL out.", field="url")
    remote: dict[str, Any] = {"type": known.types[1]} if known.types else {}
    remote[known.url] = url
    if key_variable and known.bearer_variable:
        return {**remote, known.bearer_variable: key_variable}
    if key_variable:
        if known.variable is None:
            raise invalid("No way is known to name a variable in this form; pass the key.", field="key_variable")
        key = known.variable % key_variable
    return {**remote, known.headers: {"Authorization": f"Bearer {key}"}} if key else remote


def hook_entries(client: str, command: str) -> dict[str, dict[str, Any]]:
    """What the client's hooks file holds for `command`, by event: for every point where it has PLANNING, else for those
    of mail, and the one before a tool that edits."""
    every = PLANNING in shlex.split(command)
    before = next(name for name, event in POINTS[client].items() if event is HarnessEvent.PRE_TOOL_USE)
    names = list(dict.fromkeys([*NAMES[client], *(POINTS[client] if every else [before])]))
    # Cursor's entries are for all tools when they name none.
    tools = {} if client == "cursor" else {name: "*" for name in names if POINTS[client].get(name) in MATCHED}
    if not every:
        tools[before] = "|".join(EDITING[client])
    matchers = {name: {"matcher": tools[name]} if name in tools else {} for name in names}
    if client == "cursor":
        return {name: {"command": command, "timeout": HOOK_TIMEOUT, **matchers[name]} for name in names}
    timeout = HOOK_TIMEOUT * (1000 if client == "gemini" else 1)
    handler = {"type": "command", "command": command, "timeout": timeout}
    return {name: {**matchers[name], "hooks": [handler]} for name in names}


def hook_command(program: Sequence[str], client: str, options: Sequence[str] = ()) -> str:
    """The shell line that a harness calls; `is_ours` knows it again."""
    return shlex.join([*program, "hook", "--client", client, *options])


def is_ours(command: Any, client: str) -> bool:
    """Whether a hook's command line is one of `hook_command`'s for this client."""
    if not isinstance(command, str):
        return False
    try:
        words = shlex.split(command)
        at = words.index("hook")
    except ValueError:
        return False
    paths = [Path(word) for word in words[:at]]
    # `python -m nexus_site` was written as its file, PACKAGE/__main__.py, by 0.1.
    programs = {path.parent.name if path.name == "__main__.py" else path.stem for path in paths}
    return not programs.isdisjoint(PROGRAMS) and words[at + 1 : at + 3] == ["--client", client]


def dump(format: Format, document: Mapping[str, Any], indent: str | int = 2) -> str:
    """The text of a configuration file."""
    if format == "toml":
        import tomlkit

        return tomlkit.dumps(document)
    return json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def locate(path: str, project_root: Path) -> Path:
    """The file that one of the table's paths means on this machine."""
    home = Path.home()
    if sys.platform == "darwin":
        app_data = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        app_data = Path(os.environ.get("APPDATA", home / "AppData" / "Roaming"))
    else:
        app_data = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    if path.startswith(APP_DATA):
        return app_data / path.removeprefix(APP_DATA + "/")
    return home / path[2:] if path.startswith("~/") else project_root / path
