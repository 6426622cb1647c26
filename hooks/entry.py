"""`nexus hook` as a harness calls it: quick, silent when there is nothing, and never a reason for the harness to fail.

Most calls end here, with the standard library alone; Django starts only when there is something to tell, or when a look
is due and the store is on a server.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.harness_events import HANDLERS, NOTHING, Happening, Said
from core.patience import patience
from hooks import glance, harness, memory, points, signal_files
from hooks.harness import SESSION_START, STOP, Call

ACTIONS = ("install", "uninstall", "signal-file", "-h", "--help")  # what `nexus hook` does for people
BUSY_TIMEOUT_MS = "500"  # a harness waits for its hook
PATIENCE_SECONDS = 5  # then the hook gives up; the harness's own limit is later

Configure = Callable[[], tuple[Any, Sequence[str]]]


def is_call(arguments: Sequence[str]) -> bool:
    """Whether a harness calls, and not a person who installs."""
    return not any(argument in ACTIONS for argument in arguments)


def main(configure: Configure, start_django: Callable[[], None]) -> None:
    """One call, from stdin to stdout. Whatever fails: one line on stderr, nothing on stdout, exit code 0."""
    try:
        with patience(PATIENCE_SECONDS):
            settings, arguments = configure()
            text = "" if sys.stdin.isatty() else sys.stdin.read()
            answer = respond(settings, harness.read(arguments, os.environ, text), start_django)
            sys.stdout.write(answer)
            sys.stdout.flush()
    except Exception as error:
        _complain(error)


def _complain(error: Exception) -> None:
    said = " ".join(str(error).split())[:300]
    with contextlib.suppress(OSError):
        sys.stderr.write(f"[nexus] hook: {said or type(error).__name__}\n")


def respond(settings: Any, call: Call, start_django: Callable[[], None]) -> str:
    """What to print for a call; the empty string when there is nothing to tell."""
    said = _handled(settings, call, start_django)
    if said.refusal or said.warning:
        return harness.render_aside(call, said)
    try:
        mail = _mail(settings, call, start_django)
    except Exception as error:
        if not said.context:
            raise
        _complain(error)  # what was done for the session is told all the same
        mail = ""
    text = "\n".join(part for part in (said.context, mail) if part)
    return harness.render(call, text) if text else ""


def _handled(settings: Any, call: Call, start_django: Callable[[], None]) -> Said:
    """What the apps say that listen to every point of a session. What goes wrong there keeps no mail back."""
    if call.point is None:
        return NOTHING

    def perform(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        start_django()
        from hooks import look

        return look.perform(call, name, arguments)

    happening = Happening(
        event=call.point,
        client=call.client,
        root=call.root,
        caller=call.agent_id,
        settings=settings,
        wanted=call.planning,
        heard=points.hears(call.client, call.name, call.point),
        perform=perform,
        **points.fields(call.payload),
    )
    said = []
    for handler in HANDLERS:
        try:
            said.append(handler(happening))
        except TimeoutError:
            raise  # the harness has waited enough
        except Exception as error:
            _complain(error)
    return Said(*("\n".join(filter(None, texts)) for texts in zip(*said, strict=True))) if said else NOTHING


def _mail(settings: Any, call: Call, start_django: Callable[[], None]) -> str:
    if call.event is None or (call.event == STOP and call.continued):
        return ""
    with memory.alone(settings.home, call) as alone:
        # A harness runs tools in parallel, and their hooks with them: one of them tells.
        return _turn(settings, call, start_django) if alone else ""


def _turn(settings: Any, call: Call, start_django: Callable[[], None]) -> str:
    told = memory.told(settings.home, call)
    if call.event == SESSION_START:
        told = memory.Told()  # a new context knows nothing
    due, must_look = _passed(told.refresh_by, settings), _must_look(settings, call, told)
    if not (due or must_look):
        return ""
    if due:
        told.refresh_by = time.time() + _pace(settings)
        _in_background(lambda: _refresh(call, start_django))
    answer = _look(settings, call, told, start_django) if must_look else ""
    memory.keep_told(settings.home, call, told)
    return answer


def _pace(settings: Any) -> float:
    """How many seconds may go by without a look at the store or a heartbeat."""
    return float(settings.session_stale_ttl_seconds / 2)


def _passed(moment: float, settings: Any) -> bool:
    """Whether a remembered moment is over; one that is too far ahead was written before the clock went back."""
    return not 0 < moment - time.time() <= _pace(settings)


def _must_look(settings: Any, call: Call, told: memory.Told) -> bool:
    if call.event == STOP or _passed(told.look_by, settings):  # what it took itself since, no signal tells of
        return True
    seen = signal_files.stamp(settings.home, call.agent_id)
    return seen is None or seen != told.signal


def _look(settings: Any, call: Call, told: memory.Told, start_django: Callable[[], None]) -> str:
    """Tell what is new, once; at Stop, once more what still waits, and once what the agent owes."""
    signal_files.arm(settings.home, call.agent_id)
    told.signal = signal_files.stamp(settings.home, call.agent_id)  # before the look, so that none is missed
    seen = _seen(settings, call, start_django)
    told.look_by = min(seen.changes_at, time.time() + _pace(settings))
    told.told = [item for item in told.told if item in seen.waiting]
    told.pressed = [item for item in told.pressed if item in seen.waiting]
    known = told.pressed if call.event == STOP else told.told
    debts = seen.owed - set(told.owed)
    if call.event == STOP:
        told.owed = sorted(seen.owed)
    if seen.waiting <= set(known) and not debts:
        return ""
    start_django()
    from hooks import look

    owed = look.owed(call, debts) if debts else ""
    if seen.waiting <= set(known):
        return owed
    text, fresh = look.waiting(call, known)
    told.told = sorted(seen.waiting | fresh)  # the notice counts what it does not show
    if call.event == STOP:
        told.pressed = told.told
    return text + owed


def _seen(settings: Any, call: Call, start_django: Callable[[], None]) -> glance.Seen:
    """What waits: without Django where the store is a file."""
    if settings.database_url is None:
        return glance.glance(
            settings.database,
            agent_id=call.agent_id,
            root=call.root,
            busy_ms=settings.busy_timeout_ms,
            owing=call.event == STOP,
        )
    start_django()
    from hooks import look

    return look.seen(call)


def _refresh(call: Call, start_django: Callable[[], None]) -> None:
    start_django()
    from hooks import look

    look.refresh(call)


def _in_background(work: Callable[[], None]) -> None:
    """Do what the harness need not wait for in a process of its own; at once where the system has none."""
    if not hasattr(os, "fork"):
        work()
    elif os.fork() == 0:
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):  # the harness reads until its pipes are closed
                os.dup2(null, stream)
            os.closerange(3, 256)  # the lock of this call
            signal.alarm(60)
            work()
        finally:
            os._exit(0)
