"""The entries that connect a coding client of `nexus.core.coding_clients`: of its MCP servers and its hooks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from nexus.core import processes
from nexus.core.coding_clients import APP_DATA, BEFORE, CLIENTS, HOOKED, MOVED, TOOLS, Format
from nexus.core.config import flag
from nexus.core.files import own_user
from nexus.core.operations.errors import invalid
from nexus.hooks.config_text import FORMATS
from nexus.hooks.config_text import Path as TextPath
from nexus.hooks.harness import MATCHED, PLANNING, WAIT

SERVER = "nexus"  # the name of the entry in every client
PROGRAMS = {"nexus", "nexus_site", "manage"}  # program names of the `nexus` command
KEY_VARIABLE = "NEXUS_API_KEY"  # `runmcp` reads the agent's key from it
# What an operator gives to `runmcp` by variables, for a client that starts it with a cleaned environment.
PASSED = (
    *(KEY_VARIABLE, "NEXUS_AGENT_ID", "NEXUS_HOME", "NEXUS_DB_PATH", "NEXUS_DATABASE_URL", "NEXUS_STANDALONE"),
    *("PGPASSWORD", "PGPASSFILE"),
)
DEFAULT_COMMAND = (SERVER, "runmcp")
WAYS = ("command", "args", "url", "httpUrl", "serverUrl")  # fields that lead to a server, in any client
# Codex's other fields that belong to one of the two ways: to a program, or to an address.
OF_PROGRAMS, OF_ADDRESSES = ("env", "env_vars", "cwd"), ("http_headers", "env_http_headers")
GATE = "planning_gate_edits"  # the setting of planning that a hook enforces
STORE_SETTINGS = ("home", "db_path", "database_url")  # settings that select the store
STORE_FLAGS = tuple(map(flag, STORE_SETTINGS))
HOOK_TIMEOUT = 10  # seconds until the harness gives up; the hook itself gives up earlier


def installed_clients() -> list[str]:
    """Return the clients on this machine: those on the PATH, or that have been started before."""
    return [
        name
        for name, client in CLIENTS.items()
        if (client.program and shutil.which(client.program))
        or (client.directory and os.path.isdir(locate(client.directory, Path.home())))  # noqa: PTH112  # never raises
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
    text = dump(known.format, (known.servers, SERVER), entry)
    return Snippet(known.format, text, known.project_file or known.user_file)


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
        local |= {known.passed: list(PASSED)} if known.passed else {}
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


def stale_fields(client: str, entry: Mapping[str, Any]) -> list[TextPath]:
    """Return the fields of an earlier entry that contradict this one: another way to the server, or its secret."""
    known = CLIENTS[client]
    fields: list[TextPath] = [(name,) for name in WAYS if name not in entry]
    if known.url in entry:
        fields.append((known.environment, KEY_VARIABLE))
    if known.passed:  # with a field of the other way Codex does not start, even if a person added it
        fields += [(name,) for name in (OF_PROGRAMS if known.url in entry else OF_ADDRESSES)]
    if known.headers not in entry:
        fields.append((known.headers, "Authorization"))
    if known.bearer_variable and known.bearer_variable not in entry:
        fields.append((known.bearer_variable,))
    return fields


def store_of(started: Any) -> Mapping[str, str]:
    """Return what names the store in an entry of ours, or in a hook's command line: flags, or the address of a hub."""
    entry = started if isinstance(started, Mapping) else {"command": shlex.split(started)}
    parts = [entry.get("command"), entry.get("args")]
    words = [str(word) for part in parts for word in (part if isinstance(part, list) else [part])]
    addresses = {name: str(entry[name]) for name in WAYS if "url" in name.lower() and name in entry}
    return {**{word: after for word, after in pairwise(words) if word in STORE_FLAGS}, **addresses}


def hook_points(client: str) -> list[str]:
    """Return the client's names of all points at which a hook of ours may be installed."""
    hooks = HOOKED[client]
    return list(dict.fromkeys([*hooks.names, *hooks.points, *hooks.activities]))


@cache
def version(client: str) -> tuple[int, ...]:
    """Return the version of the client on the PATH; empty if there is none, or it does not say."""
    program = shutil.which(CLIENTS[client].program or "")
    if program is None:
        return ()
    try:
        said = processes.run([program, "--version"], cwd="/", env=os.environ, seconds=10, largest=1_000).output
    except (OSError, TimeoutError):
        return ()
    found = re.search(rb"\d+(?:\.\d+)+", said)
    return tuple(map(int, found[0].split(b"."))) if found else ()


def hook_entries(client: str, command: str) -> dict[str, dict[str, Any]]:
    """Return the entries of the client's hooks file for `command`, by event: for mail, for what the agent does, and
    before a tool that edits or runs a line of shell; with PLANNING for every point of a session."""
    every = PLANNING in shlex.split(command)
    hooks = HOOKED[client]
    before = next(name for name, event in hooks.points.items() if event is BEFORE)
    wanted = {*hooks.names, *hooks.activities, before, *(hooks.points if every else ())}
    unknown = {name for name, since in hooks.since.items() if version(client) < since}
    names = [name for name in hook_points(client) if name in wanted - unknown]
    # Cursor's entries without a matcher are for all tools.
    tools = {} if client == "cursor" else {name: "*" for name in names if hooks.points.get(name) in MATCHED}
    if not every:
        tools[before] = "|".join((*TOOLS[client].editing, TOOLS[client].shell))
    matchers = {name: {"matcher": tools[name]} if name in tools else {} for name in names}
    if client == "cursor":
        return {name: {"command": command, "timeout": HOOK_TIMEOUT, **matchers[name]} for name in names}
    unit = 1000 if client == "gemini" else 1
    handlers = {
        name: {"type": "command", "command": command, "timeout": hooks.most_seconds.get(name, HOOK_TIMEOUT) * unit}
        for name in names
    }
    return {name: {**matchers[name], "hooks": [handlers[name]]} for name in names}


def waking_entry(client: str, command: str) -> dict[str, Any] | None:
    """Return the entry of the hook that wakes the client's agent; None for a client without such hooks."""
    waking = HOOKED[client].waking
    return None if waking is None else {"hooks": [{"type": "command", "command": f"{command} {WAIT}", **waking.fields}]}


def hook_command(program: Sequence[str], client: str, options: Sequence[str] = ()) -> str:
    """Return the shell command line for a harness; `is_ours` recognizes it."""
    return shlex.join([*program, "hook", "--client", client, *options])


def with_choices(command: str, installed: str | None) -> str:
    """Return a hook's command line with what a person chose in the one that is installed: variables, the agent's name,
    planning."""
    words = shlex.split(installed or "")
    variables = [word.partition("=") for word in takewhile(lambda word: "=" in word, words)]
    chosen: list[str] = []
    for word, after in pairwise([*words, ""]):
        if word in ("--agent-id", "--agent", flag(GATE)):
            chosen += [word, after]
        elif word == PLANNING:
            chosen.append(word)
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, _, value in variables), command, shlex.join(chosen)]
    ).strip()


def is_ours(command: Any, client: str, *, waits: bool = False) -> bool:
    """Return whether a hook's command line is one of `hook_command` for this client: of a hook that `waits`, or of
    another."""
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
    is_one = not programs.isdisjoint(PROGRAMS) and words[at + 1 : at + 3] == ["--client", client]
    return is_one and (WAIT in words) == waits


def dump(format: Format, path: TextPath, value: Mapping[str, Any]) -> str:
    """Return the text of a configuration file that holds this value."""
    document = FORMATS[format]("")
    document.put(path, value)
    return document.text


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
    for usual, variable, below in MOVED:
        if (path == usual or path.startswith(usual + "/")) and (directory := os.environ.get(variable)):
            file = Path(directory + below + path.removeprefix(usual))
    try:
        real = file.resolve()
        owner = next(each for each in (real, *real.parents) if each.exists()).stat().st_uid
    except (OSError, RuntimeError):  # a link to itself, or into a directory that this user may not enter
        return file
    return real if own_user() in (owner, None) else file
