"""The coding clients that Nexus can configure: the files and the format of their MCP servers and hooks."""

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

from nexus.core.files import own_user
from nexus.core.harness_events import EDITING, SHELLS, HarnessEvent
from nexus.core.operations.errors import invalid
from nexus.hooks.harness import MATCHED, NAMES, PLANNING, POINTS

SERVER = "nexus"  # the name of the entry in every client
PROGRAMS = {"nexus", "nexus_site", "manage"}  # program names of the `nexus` command
KEY_VARIABLE = "NEXUS_API_KEY"  # `runmcp` reads the agent's key from it
DEFAULT_COMMAND = (SERVER, "runmcp")
HOOK_TIMEOUT = 10  # seconds until the harness gives up; the hook itself gives up earlier
APP_DATA = "{app_data}"  # the system's directory for a user's application data

LOCAL_OR_HTTP = ("stdio", "http")

Format = Literal["json", "toml"]


@dataclass(frozen=True)
class Client:
    """One client's conventions; paths are relative to the project, or start with `~` or APP_DATA."""

    title: str
    program: str | None = None  # its program
    directory: str | None = None  # a directory that the client creates when it is started
    servers: str = "mcpServers"  # the object that holds the entries
    user_file: str | None = None
    project_file: str | None = None
    format: Format = "json"
    types: tuple[str, str] | None = None  # names of the transport in an entry: local, remote
    joined: bool = False  # whether `command` includes the arguments
    environment: str = "env"  # the field of a local server's variables
    url: str | None = "url"  # the field of a remote server; None if only local ones are possible
    headers: str = "headers"
    variable: str | None = None  # how a header refers to an environment variable
    bearer_variable: str | None = None  # the field that names the variable of a bearer token
    user_hooks: str | None = None
    project_hooks: str | None = None
    skill: str | None = None  # the path of Nexus's skill, if not the usual one
    guide: str = "AGENTS.md"  # the file of the project that its agent reads first
    first: str = "Start it anew."  # what a person must do before the client reads the entries

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
        project_hooks=".claude/settings.local.json",  # not in the repository: the command's path is of this machine
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
        first="Start `gemini` here anew and trust the folder.",
    ),
    "qwen": Client(
        "Qwen Code",
        program="qwen",
        directory="~/.qwen",
        user_file="~/.qwen/settings.json",
        project_file=".qwen/settings.json",
        url="httpUrl",
        variable="${%s}",
        first="Start `qwen` here anew and approve the server nexus.",
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
    "copilot": Client(
        "Copilot CLI",
        program="copilot",
        directory="~/.copilot",
        user_file="~/.copilot/mcp-config.json",
        project_file=".github/mcp.json",
        types=("local", "http"),
        first="Start `copilot` here anew and trust the folder.",
    ),
    "auggie": Client(
        "Auggie",
        program="auggie",
        directory="~/.augment",
        user_file="~/.augment/settings.json",
        project_file=".augment/settings.json",
        types=LOCAL_OR_HTTP,
        first="Start `auggie` here anew.",
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
    """Return the clients on this machine: those on the PATH, or that have been started before."""
    return [
        name
        for name, client in CLIENTS.items()
        if (client.program and shutil.which(client.program))
        or (client.directory and locate(client.directory, Path.home()).is_dir())
    ]


class Snippet(NamedTuple):
    """A configuration ready to paste: its format, its text, and the file it belongs in (None: the client's choice)."""

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
    """Return the configuration that connects `client`: over HTTP if `url` is given, otherwise by starting `command`.

    Raises the VALIDATION_ERROR of `server_entry`.
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
    """Return one MCP server in the client's format. `key` is an agent's API key, `key_variable` an environment variable
    that holds it.

    Raises VALIDATION_ERROR for a remote server if the client only starts local ones, and for a variable if the client
    cannot refer to one.
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
    """Return the entries of the client's hooks file for `command`, by event: with PLANNING every point of a session,
    otherwise those for mail and the one before a tool that edits or runs a line of shell."""
    every = PLANNING in shlex.split(command)
    before = next(name for name, event in POINTS[client].items() if event is HarnessEvent.PRE_TOOL_USE)
    names = list(dict.fromkeys([*NAMES[client], *(POINTS[client] if every else [before])]))
    # Cursor's entries without a matcher are for all tools.
    tools = {} if client == "cursor" else {name: "*" for name in names if POINTS[client].get(name) in MATCHED}
    if not every:
        tools[before] = "|".join((*EDITING[client], *SHELLS[client]))
    matchers = {name: {"matcher": tools[name]} if name in tools else {} for name in names}
    if client == "cursor":
        return {name: {"command": command, "timeout": HOOK_TIMEOUT, **matchers[name]} for name in names}
    timeout = HOOK_TIMEOUT * (1000 if client == "gemini" else 1)
    handler = {"type": "command", "command": command, "timeout": timeout}
    return {name: {**matchers[name], "hooks": [handler]} for name in names}


def hook_command(program: Sequence[str], client: str, options: Sequence[str] = ()) -> str:
    """Return the shell command line for a harness; `is_ours` recognizes it."""
    return shlex.join([*program, "hook", "--client", client, *options])


def is_ours(command: Any, client: str) -> bool:
    """Return whether a hook's command line is one of `hook_command` for this client."""
    if not isinstance(command, str):
        return False
    try:
        words = shlex.split(command)
        at = words.index("hook")
    except ValueError:
        return False
    paths = [Path(word) for word in words[:at]]
    # Version 0.1 wrote `python -m nexus_site` as its file, PACKAGE/__main__.py.
    programs = {path.parent.name if path.name == "__main__.py" else path.stem for path in paths}
    return not programs.isdisjoint(PROGRAMS) and words[at + 1 : at + 3] == ["--client", client]


def dump(format: Format, document: Mapping[str, Any], indent: str | int = 2) -> str:
    """Return the text of a configuration file."""
    if format == "toml":
        import tomlkit

        return tomlkit.dumps(document)
    return json.dumps(document, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"


def locate(path: str, project_root: Path) -> Path:
    """Return the file on this machine for one of the paths in the table of clients.

    Links of the user's that lead to a file of the user's are followed. No other link ever is: whoever reads or writes
    this file refuses it.
    """
    home = Path.home()
    if sys.platform == "darwin":
        app_data = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        app_data = Path(os.environ.get("APPDATA", home / "AppData" / "Roaming"))
    else:
        app_data = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    if not path.startswith(("~/", APP_DATA)):
        return project_root / path
    file = home / path[2:] if path.startswith("~/") else app_data / path.removeprefix(APP_DATA + "/")
    real = file.resolve()
    owner = next(each for each in (real, *real.parents) if each.exists()).stat().st_uid
    return real if own_user() in (owner, None) else file
