"""`nexus wait`, and the hook that a client runs in the background while its agent is idle: they end as soon as
something waits for the agent itself, and tell it. Standard library alone.

Between two looks the process is `nexus.hooks.waiter`. The looks and the other hooks of the agent share one memory, so
that each thing is told once.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO

from nexus.core import processes
from nexus.core.coding_clients import HARNESSES, SESSION_START, Waking
from nexus.core.harness_events import Activity
from nexus.core.operations.errors import Code, NexusError
from nexus.core.time_limit import time_limit
from nexus.hooks import announcements, entry, harness, hook_state, signal_files, transcripts, waiter
from nexus.hooks.entry import Configure
from nexus.hooks.harness import PROBE, Ask, HookCall

STATE = "NEXUS_WAITER"  # the variable in which the process remembers, from one look to the next
WOKEN = 2  # the exit code at which Claude Code starts a turn with what stands on stderr
TRANSCRIPT = "transcript_path"  # the field of a hook's input with the file in which the client tells its tokens
QWEN_ADDRESS = "QWEN_CODE_MESSAGING_SOCKET"
CLIENT_SECONDS = 3.0  # for a client to take a message; the hook itself has some seconds more
SETTLED_SECONDS = 5.0  # until the hooks of a session's start have told what waited already
LIMIT_SECONDS = 60  # for a look: no client waits for this hook, and many may be woken at once
HELD_SECONDS = 60.0  # before a look is repeated that failed, or that may not wake
WAKES_A_MINUTE = 20
WAKE_TOKENS = 1_000_000  # that woken turns use within a day
MOST_IN_A_ROW = 100  # wakes within a day, since somebody typed something
DAY_SECONDS = 86_400


def main(configure: Configure, ask: Ask, *, hooked: bool) -> NoReturn:
    """Wait, and end the process: for a client's hook when its agent is woken, for Claude Code with WOKEN and the notice
    on stderr; otherwise with 0 and the notice on stdout, OVER if nothing came in time, or 1 and an error."""
    settings = call = None
    before: dict[str, Any] = json.loads(os.environ.pop(STATE, "{}"))
    try:
        with time_limit(LIMIT_SECONDS):
            settings, arguments = configure()
            call, seconds = _call(arguments, before, hooked, settings.home)
            waking = HARNESSES[call.client].waking if hooked else None
            if hooked and not _can_wake(waking):
                os._exit(0)
            way = waking.way if waking else "exit"
            if way == "socket":  # the address stays where /clear begins another session
                call = call._replace(session=os.environ[QWEN_ADDRESS])
            if hooked and call.name == SESSION_START and not before and hook_state.has_waiter(settings.home, call):
                os._exit(0)  # Claude Code calls a fork by the name of the session that it forks
            state = before or _begun(settings.home, call, seconds, hooked)
    except Exception as error:
        if not hooked:  # who typed the command reads it: no hook failed
            raise SystemExit(refusal(error)) from None
        entry.complain(error, settings, call or harness.caller(sys.argv[2:], os.environ, settings and settings.home))
        os._exit(0)
    start_turn = STARTERS.get(way, partial(write, sys.stderr if hooked else sys.stdout))
    known = signal_files.stamp(settings.home, call.agent_id)  # before the look, so that no signal is missed
    try:
        with time_limit(LIMIT_SECONDS):
            if before and call.session == PROBE:
                Path(before["place"]).unlink()
                signal_files.path(settings.home, PROBE).unlink()
                os._exit(0)
            if call.session == PROBE or (not before and call.name == SESSION_START):
                # What waits when a session starts, the other hook of this event tells.
                notice, look_at = "", time.time() + SETTLED_SECONDS
            else:
                notice, look_at = look(settings, call, ask, start_turn)
    except Exception as error:
        entry.complain(error, settings, call)
        notice, look_at = "", time.time() + HELD_SECONDS
    if notice:
        os._exit(WOKEN if hooked and way == "exit" else 0)
    _wait(settings.home, call, state, known, look_at)


def refusal(error: Exception) -> str:
    """Return the line about a command that cannot begin."""
    if isinstance(error, NexusError):
        return f"[nexus] {error.code}: {error.message}"
    return f"[nexus] {Code.CONFIG_ERROR}: {error}"


def _call(arguments: Any, before: dict[str, Any], hooked: bool, home: Path) -> tuple[HookCall, float]:
    if before:
        return HookCall(**before["call"]), math.inf
    text = entry.read_input(sys.stdin.buffer) if hooked and not sys.stdin.isatty() else ""
    call, seconds = harness.parse_waiting(arguments, os.environ, text, home)
    if not (hooked or call.is_named):
        raise ValueError("Pass --agent, or set NEXUS_AGENT_ID: the agent that waits.")
    return call, seconds


def _can_wake(waking: Waking | None) -> bool:
    """Return whether the client's session that this hook runs in can be woken."""
    if waking is None:
        return False
    fits = all(os.environ.get(name, "").startswith(value) for name, value in waking.where.items())
    return fits and (waking.way != "socket" or _is_in_terminal())


def _is_in_terminal() -> bool:
    """Return whether this session of Qwen Code is in a terminal: one of an editor takes no messages."""
    register = Path(os.environ.get("QWEN_HOME") or "~/.qwen").expanduser() / "sessions"
    return (register / Path(os.environ[QWEN_ADDRESS]).with_suffix(".json").name).exists()


def _begun(home: Path, call: HookCall, seconds: float, hooked: bool) -> dict[str, Any]:
    place, held = hook_state.take_place(home, call)
    signal_files.arm(home, call.agent_id)
    return {
        "call": call._replace(payload={TRANSCRIPT: call.payload.get(TRANSCRIPT)}, point=None)._asdict(),
        "place": str(place),
        "held": held,
        "give_up_at": time.monotonic() + seconds,
        "parent": os.getppid() if hooked else 0,
    }


def look(
    settings: Any, call: HookCall, ask: Ask, start_turn: Callable[[HookCall, str], None] | None = None
) -> tuple[str, float]:
    """Return the notice that wakes the agent, empty if nothing does, and when (unix time) to look again.

    `start_turn` gives it to the client. Where that fails nothing counts as told: the next look tries again.
    """
    with hook_state.lock(settings.home, call):
        kept = hook_state.load(settings.home, call)
        seen = announcements.seen(settings, call, ask)
        kept.told = [item for item in kept.told if item in seen.waiting]
        now, notice = time.time(), ""
        signal = (signal_files.stamp(settings.home, call.agent_id) or 0) / 1e9
        is_told = kept.activity == Activity.WORKING or max(kept.woken, default=0) > signal  # perhaps in another session
        look_at = min(seen.changes_at, now + pace(settings))
        if seen.personal - set(kept.told):
            if why := _held(kept, now, call):
                hook_state.record_fault(settings.home, call.agent_id, call.root, why)
                look_at = now + HELD_SECONDS
            elif start_turn is queue_line and is_told and 0 <= now - signal < HELD_SECONDS:
                look_at = signal + HELD_SECONDS  # by then its hooks have told it
            else:
                if start_turn is queue_line:  # the hook of the turn that begins tells it
                    notice = harness.TYPED
                else:
                    notice, fresh = ask("waiting", call, known=list(kept.told))
                    kept.told = kept.pressed = sorted(seen.waiting.union(fresh))
                if start_turn:
                    start_turn(call, notice)
                kept.woken = [*(moment for moment in kept.woken if now - moment < DAY_SECONDS), now]
        hook_state.save(settings.home, call, kept)
    return str(notice), look_at


def pace(settings: Any) -> float:
    """Return the seconds between two looks without a signal: a store on a server has senders on other machines."""
    return min(announcements.pace(settings), waiter.LOOK_SECONDS) if settings.database_url else waiter.LOOK_SECONDS


def _held(kept: hook_state.HookMemory, now: float, call: HookCall) -> str:
    """Return why the agent may not be woken; empty if it may."""
    woken = [moment for moment in kept.woken if now - moment < DAY_SECONDS]
    if len(woken) >= MOST_IN_A_ROW:
        return f"it was woken {MOST_IN_A_ROW} times within a day, and nobody typed anything to it: it waits for that"
    if sum(0 <= now - moment < 60 for moment in woken) >= WAKES_A_MINUTE:
        return f"it was woken {WAKES_A_MINUTE} times within a minute, and sleeps until that is over"
    path = call.payload.get(TRANSCRIPT)
    if woken and isinstance(path, str) and transcripts.tokens_since(path, min(woken)) >= WAKE_TOKENS:
        return f"its woken turns took {WAKE_TOKENS:,} tokens within a day, and nobody typed anything to it"
    return ""


def write(stream: TextIO, call: HookCall, notice: str) -> None:
    """Write the notice for whoever waits for the end of this process. End with nothing told where nobody does."""
    try:
        stream.write(notice)
        stream.flush()
    except OSError:
        os._exit(0)


def queue_line(call: HookCall, notice: str) -> None:
    """Put a line into the queue of Codex's session. Others on this machine may read a command line, so the notice comes
    from the hook of the turn that begins. Raises OSError or TimeoutError."""
    command = ["codex", "queue", f"--thread={call.session}", f"--message={notice}"]
    done = processes.run(command, cwd=os.sep, env=os.environ, seconds=CLIENT_SECONDS, largest=65_536)
    if done.code:
        raise OSError(f"codex queue took no message: {done.errors.decode(errors='replace')}")


def send_to_session(call: HookCall, notice: str) -> None:
    """Send a notice to Qwen Code's session, whose address its hooks get. Raises OSError."""
    import socket

    message = {"role": "user", "content": notice}
    lines: list[Mapping[str, Any]] = [
        {"msgV": 1, "type": "auth", "token": os.environ["QWEN_CODE_MESSAGING_TOKEN"]},
        {"msgV": 1, "type": "user", "msgId": os.urandom(16).hex(), "message": message},
    ]
    with socket.socket(socket.AF_UNIX) as session:
        session.settimeout(CLIENT_SECONDS)
        session.connect(os.environ[QWEN_ADDRESS])
        session.sendall("".join(json.dumps(line) + "\n" for line in lines).encode())


# What starts a turn, where the end of the process does not.
STARTERS: Mapping[str, Callable[[HookCall, str], None]] = {"queue": queue_line, "socket": send_to_session}


def _wait(home: Path, call: HookCall, state: dict[str, Any], known: int | None, look_at: float) -> NoReturn:
    os.environ[STATE] = json.dumps(state)
    # Not as a script: where that was removed meanwhile, Python would end with 2, the code that wakes.
    command = processes.python("nexus", *sys.argv[1:], alone=bool(sys.flags.ignore_environment))
    words = [state["place"], state["held"], signal_files.path(home, call.agent_id), known, look_at, state["give_up_at"]]
    processes.become([sys.executable, "-I", "-S", waiter.__file__, *map(str, words), str(state["parent"]), *command])
