"""`nexus hook` as a harness calls it: fast, silent if there is nothing to say, and never a cause for the harness to
fail.

Most calls are answered here, with the standard library alone. If there is something to say, or a check is due and the
store is on a server, it asks the hub of the home, or a Django process that it starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nexus.core.harness_events import HANDLERS, NOTHING, HarnessEvent, HookAnswer, HookEvent
from nexus.core.time_limit import time_limit
from nexus.hooks import harness
from nexus.hooks.harness import Ask, HookCall

ACTIONS = ("install", "uninstall", "signal-file", "-h", "--help")  # the subcommands for people
BUSY_TIMEOUT_MS = "500"  # a harness waits for its hook
TIME_LIMIT_SECONDS = 5  # then the hook gives up, before the harness does
PIECE = 65_536  # bytes that are read at once

Configure = Callable[[], tuple[Any, Sequence[str]]]


def is_call(arguments: Sequence[str]) -> bool:
    """Return whether a harness calls, and not a person who installs hooks."""
    return not any(argument in ACTIONS for argument in arguments)


def main(configure: Configure, ask: Ask) -> None:
    """Handle one call, from stdin to stdout. An error prints one line on stderr and nothing on stdout; the exit code is
    0."""
    settings = call = None
    try:
        with time_limit(TIME_LIMIT_SECONDS):
            settings, arguments = configure()
            text = "" if sys.stdin.isatty() else read_input(sys.stdin.buffer)
            call = harness.parse_call(arguments, os.environ, text, settings.home)
            sys.stdout.write(respond(settings, call, ask))
            sys.stdout.flush()
    except Exception as error:
        complain(error, settings, call or harness.caller(sys.argv[2:], os.environ, settings and settings.home))


def read_input(stream: BinaryIO) -> str:
    """Return the input up to its end, or one whole JSON value: a client may keep the pipe open. Raises ValueError for
    what is no UTF-8."""
    data = b""
    while piece := stream.read1(PIECE):  # type: ignore[attr-defined]  # a pipe's reader has it
        data += piece
        if piece.rstrip().endswith(b"}"):
            with contextlib.suppress(ValueError, RecursionError):
                json.loads(data)
                break
    return data.decode("utf-8-sig")


def complain(error: Exception, settings: Any, call: HookCall) -> None:
    """Print an error on stderr, which most harnesses hide, and store it for the operator's pages and `nexus doctor`:
    in the home, or the usual one where the settings cannot be read."""
    from nexus.hooks import hook_state  # not imported where nothing fails

    said = " ".join(str(error).split())[:300] or type(error).__name__
    with contextlib.suppress(OSError):
        sys.stderr.write(f"[nexus] hook: {said}\n")
    home = Path(os.environ.get("NEXUS_HOME") or "~/.nexus").expanduser() if settings is None else settings.home
    with contextlib.suppress(OSError):
        hook_state.record_fault(home, call.agent_id, call.root, said)


def respond(settings: Any, call: HookCall, ask: Ask) -> str:
    """Return the output of a call; empty if there is nothing to say."""
    if call.point is HarnessEvent.SESSION_END:
        from nexus.hooks import hook_state  # not imported at other points

        if hook_state.leave_place(settings.home, call):
            return ""
    said = _handled(settings, call, ask)
    if said.refusal or said.warning:
        return harness.render_aside(call, said)
    try:
        mail = _mail(settings, call, ask)
    except Exception as error:
        if not said.context:
            raise
        complain(error, settings, call)  # the app's text is printed all the same
        mail = ""
    text = "\n".join(part for part in (said.context, mail) if part)
    return harness.render(call, text) if text else ""


def _handled(settings: Any, call: HookCall, ask: Ask) -> HookAnswer:
    """Return what the apps say that handle every point of a session. An error there does not keep mail back."""
    if call.point is None:
        return NOTHING

    def perform(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        data: Mapping[str, Any] = ask("perform", call, operation=name, arguments=arguments)
        return data

    happening = HookEvent(
        event=call.point,
        client=call.client,
        root=call.root,
        caller=call.agent_id,
        settings=settings,
        wanted=call.planning,
        heard=harness.hears(call.client, call.name, call.point),
        perform=perform,
        **harness.fields(call.client, call.payload),
    )
    answers = []
    for handler in HANDLERS:
        try:
            answers.append(handler(happening))
        except TimeoutError:
            raise  # the time limit is over
        except Exception as error:
            complain(error, settings, call)
    return HookAnswer(*("\n".join(filter(None, texts)) for texts in zip(*answers, strict=True))) if answers else NOTHING


def _mail(settings: Any, call: HookCall, ask: Ask) -> str:
    if not (call.takes_mail or call.tells_activity):
        return ""
    from nexus.hooks import announcements  # not imported for the check of an edit

    return announcements.announcement(settings, call, ask)
