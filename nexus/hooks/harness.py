"""The input of a hook from a coding harness, and the output in the harness's format; the points of a session at which a
harness calls, with its names for them, their data, and how the agent hears the answer. Standard library alone.

Claude Code, Codex and Qwen Code: JSON with `hook_event_name`, answered with `additionalContext` or, at Stop, a block
with its reason. Gemini CLI and Cursor: the same with other names. `text`: any other harness, plain text.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

from nexus.core.coding_clients import (
    AFTER,
    BEFORE,
    COMPACT,
    COMPLETE,
    END,
    EVENTS,
    HARNESSES,
    PROMPT,
    SPAWN,
    START,
    STOP,
    WAKE,
    edits_files,
)
from nexus.core.harness_events import HarnessEvent, HookAnswer

MATCHED = frozenset({BEFORE, AFTER})  # entries for these have a matcher of tools: all of them
UNHEARD = frozenset({COMPLETE, END})  # no client shows its agent what is said here


def point(client: str, name: str | None, payload: Mapping[str, Any]) -> HarnessEvent | None:
    """Return the event for a client's own name; None for one that is not handled."""
    event = HARNESSES[client].points.get(name or "")
    return COMPACT if event is START and payload.get("source") == "compact" else event


def hears(client: str, name: str | None, event: HarnessEvent) -> bool:
    """Return whether the agent hears what is said at an event with this name in the client."""
    if event in UNHEARD or (event is COMPACT and name not in ("SessionStart", "sessionStart")):
        return False
    if event is BEFORE and not HARNESSES[client].hears_before:
        return False
    return not (client == "cursor" and event is SPAWN) and name != "postToolUseFailure"


def fields(client: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a payload that a HookEvent holds."""
    return {
        "prompt": "" if is_woken(payload) else _text(payload, "prompt"),
        "goes_on": payload.get("source") == "resume",
        "agent_type": _text(payload, "agent_type", "subagent_type"),
        "agent_id": _text(payload, "agent_id", "subagent_id"),
        "assignment": _text(payload, "task", "description"),
        "message": _text(payload, "last_assistant_message", "summary"),
        "failed": _failed(payload),
        **(_of_tool(client, payload) if "tool_name" in payload else {}),
    }


def is_woken(payload: Mapping[str, Any]) -> bool:
    """Return whether what an agent was sent is a notice of ours, in which others' words are, or the line that only
    says that something waits: no person typed it."""
    said = _text(payload, "prompt")
    return NOTICE in said or said.strip() == TYPED


def _of_tool(client: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    from nexus.hooks import tool_files  # not where no tool is used

    arguments, tool, cwd = tool_files.arguments_of(payload), _text(payload, "tool_name"), _text(payload, "cwd")
    directory = tool_files.directory_of(arguments, cwd and os.path.realpath(cwd))
    return {
        "tool": tool,
        "directory": directory,
        "files": tool_files.files_of(arguments, directory),
        "edits": edits_files(client, tool) or tool_files.edits(tool, arguments),
        "command": tool_files.command_of(arguments),
    }


def _text(payload: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := payload.get(name), str) and value), "")


def _failed(payload: Mapping[str, Any]) -> bool:
    failing = ("PostToolUseFailure", "postToolUseFailure")
    if payload.get("hook_event_name") in failing or payload.get("status") in ("error", "aborted"):
        return True
    response = payload.get("tool_response")
    return isinstance(response, Mapping) and bool(response.get("error") or response.get("is_error"))


PROJECT_VARIABLES = ("CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR", "GEMINI_PROJECT_DIR")
PLANNING = "--planning"  # an option in the command of a hook for every point
NOTICE = "[nexus] You are agent "  # how each notice begins
PROBE = "nexus setup --check"  # agent and session of a waiter that only answers one signal
WAIT = "--wait"  # an option of the hook that a client runs in the background
TYPED = "Something waits for you on Nexus: pull your inbox and list your handoffs."  # where no notice may be typed
MAX_ID = 255


class HookCall(NamedTuple):
    """One call of the hook, from any harness."""

    client: str
    event: str | None  # one of EVENTS; None for a point without mail
    root: str  # the project, resolved
    agent_id: str
    session: str = ""  # as the client names it
    is_named: bool = False  # by an option or a variable
    continued: bool = False  # a hook has already kept the agent from stopping: do not do it again
    name: str | None = None  # the client's name of the point
    point: HarnessEvent | None = None  # the same for the handlers of `nexus.core.harness_events`
    planning: bool = False  # act on this project's plan, even if there is none yet
    payload: Mapping[str, Any] = MappingProxyType({})
    connection: str | None = None  # of the process that asks the hub; None in that process itself

    @property
    def takes_mail(self) -> bool:
        """Whether the agent may be told of its mail here."""
        return self.event is not None and not (self.event == STOP and self.continued)

    @property
    def tells_activity(self) -> bool:
        """Whether it may say what the agent does."""
        return self.event is not None or self.name in HARNESSES[self.client].activities


# Answers a query of `nexus.hooks.store_queries`, given its name, the call and further arguments; in the
# answer a list may replace a set or a tuple. Raises NexusError.
Ask = Callable[..., Any]


class _Parser(argparse.ArgumentParser):
    def __init__(self, *, exit_on_error: bool = True) -> None:
        def formatter(prog: str) -> argparse.HelpFormatter:
            return argparse.HelpFormatter(prog, width=80)  # a fixed width avoids importing shutil

        super().__init__(formatter_class=formatter, add_help=False, allow_abbrev=False, exit_on_error=exit_on_error)

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a call."""
    _add_caller(parser)
    parser.add_argument("--event", choices=EVENTS, help="the point of the session, if the input does not say it")
    parser.add_argument(
        PLANNING, action="store_true", help="also update the project's .nexus directory, at every point of a session"
    )


def _add_caller(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--client",
        choices=tuple(HARNESSES),
        help="the client, or text for any other; default: recognised from the input",
    )
    # Keep the longer spellings: clients' files have them.
    parser.add_argument(
        "--agent-id",
        "--agent",
        metavar="AGENT",
        help="who the agent is; default: NEXUS_AGENT_ID, else as `nexus setup` named it, or made of client and project",
    )
    parser.add_argument(
        "--project-root",
        "--project",
        metavar="DIR",
        help="the project; default: the client's, else the working directory",
    )


def parse_call(arguments: Sequence[str], environ: Mapping[str, str], text: str, home: Path | None = None) -> HookCall:
    """Parse a call. Raises ValueError for an unknown option, or input that is not a JSON object."""
    parser = _Parser()
    add_options(parser)
    return _call(parser.parse_args(arguments), environ, _object(text) if text.strip() else {}, home)


def add_waiting_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a call that waits."""
    _add_caller(parser)
    parser.add_argument("--seconds", type=float, default=math.inf, metavar="N", help="give up after so many seconds")
    parser.add_argument("--session", default="", help="of several sessions of the agent, the one that waits")


def parse_waiting(
    arguments: Sequence[str], environ: Mapping[str, str], text: str, home: Path | None = None
) -> tuple[HookCall, float]:
    """Parse a call that waits; return it with the seconds that it waits at most. Raises ValueError as `parse_call`."""
    parser = _Parser()
    add_waiting_options(parser)
    parser.add_argument(WAIT, action="store_true")
    parser.add_argument(PLANNING, action="store_true")  # in the command line of all hooks of a client
    parser.set_defaults(event=None)
    given = parser.parse_args(arguments)
    call = _call(given, environ, _object(text) if text.strip() else {}, home)
    return call._replace(event=WAKE, session=given.session or call.session), given.seconds


def caller(arguments: Sequence[str], environ: Mapping[str, str], home: Path | None) -> HookCall:
    """Return whose call it is, as far as its arguments and variables say: for one that could not be read."""
    parser = _Parser(exit_on_error=False)
    add_options(parser)
    try:
        given, _ = parser.parse_known_args(arguments)
    except (ValueError, argparse.ArgumentError):
        given = parser.parse_args([])
    return _call(given, environ, {}, home)


def _call(
    given: argparse.Namespace, environ: Mapping[str, str], payload: dict[str, Any], home: Path | None
) -> HookCall:
    name = payload.get("hook_event_name")
    client = given.client or _client(name)
    own_names = dict(zip(HARNESSES[client].names, EVENTS, strict=True))
    event = given.event or (PROMPT if name is None else own_names.get(str(name)))
    called = next((own for own, each in own_names.items() if each == event), str(name))
    root = os.path.realpath(given.project_root or _project(environ, payload))
    named = given.agent_id or environ.get("NEXUS_AGENT_ID")
    return HookCall(
        client=client,
        event=event,
        root=root,
        agent_id=named or derived_id(client, root, home),
        session=_text(payload, "session_id", "conversation_id"),
        is_named=bool(named),
        continued=bool(payload.get("stop_hook_active") or payload.get("loop_count")),
        name=called,
        point=point(client, called, payload),
        planning=given.planning,
        payload=payload,
    )


def _object(text: str) -> dict[str, Any]:
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        raise ValueError("the input on stdin is no JSON object")
    return payload


def _client(name: Any) -> str:
    if name is None:
        return "text"
    known = ((client, (*hooks.names, *hooks.points)) for client, hooks in HARNESSES.items())
    return next((client for client, names in known if name in names), "claude-code")


def _project(environ: Mapping[str, str], payload: Mapping[str, Any]) -> str:
    roots = payload.get("workspace_roots")
    candidates = [
        *(environ.get(name) for name in PROJECT_VARIABLES),
        roots[0] if isinstance(roots, list) and roots else None,
        payload.get("cwd"),
    ]
    try:
        return next((path for path in candidates if isinstance(path, str) and path), None) or str(Path.cwd())
    except FileNotFoundError:  # the working directory was deleted, as when an agent's worktree is discarded
        return environ.get("PWD", os.sep)


def derived_id(client: str, root: str, home: Path | None = None) -> str:
    """Return the agent id for a harness without a given one, the same for every session of that harness in that
    project: the one that `nexus setup` gave it with this home, else one made of both names."""
    import hashlib  # takes a twentieth of the time of a hook with a given id

    if home is not None:
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            return str(json.loads(setup_file(home, root).read_bytes())["agents"][client])
    return f"{client}@{name_of(root)}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:8]}"


def setup_file(home: Path, root: str | Path) -> Path:
    """Return the path of the record of what `nexus setup` did for a project."""
    import hashlib

    return home / "setup" / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json"


def name_of(root: str) -> str:
    """Return a project's name as a part of agent ids."""
    return "".join(letter for letter in Path(root).name if letter.isprintable())[: MAX_ID - 50]


def first_words(agent_id: str) -> str:
    """Return what a person says first to an agent."""
    return f"You are {agent_id} on Nexus. Do your first turn."


def render(call: HookCall, text: str) -> str:
    """Return the output with which the harness shows `text` to its agent."""
    if call.client == "text":
        return text
    if call.client == "cursor":
        answer: dict[str, Any] = {"followup_message" if call.event == STOP else "additional_context": text}
        if call.event == PROMPT:
            answer["continue"] = True
    elif call.event == STOP:
        answer = {"decision": "block", "reason": text}
    else:
        name = call.name if call.event is None else HARNESSES[call.client].names[EVENTS.index(call.event)]
        answer = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}
    return json.dumps(answer) + "\n"


def render_aside(call: HookCall, said: HookAnswer) -> str:
    """Return the output with which the harness refuses a tool to its agent, or warns its user."""
    if call.client == "text":
        return said.refusal or said.warning
    if not said.refusal:
        answer: dict[str, Any] = {"user_message" if call.client == "cursor" else "systemMessage": said.warning}
    elif call.client == "cursor":
        answer = {"permission": "deny", "user_message": said.refusal, "agent_message": said.refusal}
    elif call.client == "gemini":
        answer = {"decision": "deny", "reason": said.refusal}
    else:
        decision = {"permissionDecision": "deny", "permissionDecisionReason": said.refusal}
        answer = {"hookSpecificOutput": {"hookEventName": call.name, **decision}}
    return json.dumps(answer) + "\n"
