"""State that a hook keeps between calls, per agent and project, readable only by its owner. Standard library alone."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nexus.core import files
from nexus.core.coding_clients import PROMPT, SESSION_START, STOP, WAKE
from nexus.hooks.harness import HookCall
from nexus.hooks.signal_files import private_directory


class HookMemory:
    """What the agent was told, and when the next checks are due, in unix time."""

    def __init__(
        self,
        *,
        signal: int | None = None,
        look_by: float = 0.0,
        refresh_by: float = 0.0,
        told: Sequence[str] = (),
        pressed: Sequence[str] = (),
        owed: Sequence[str] = (),
        woken: Sequence[float] = (),
        activity: str = "",
    ) -> None:
        self.signal = signal  # the signal file's time at the last check of the store
        self.look_by = look_by  # check the store by then, even without a signal
        self.refresh_by = refresh_by  # refresh the session by then
        self.told = told  # waiting messages and handoffs that the agent was told of
        self.pressed = pressed  # those for which it was kept from stopping
        self.owed = owed  # debts that it was told of when it last stopped
        self.woken = woken  # when it was woken, in unix time, since its person last typed something
        self.activity = activity  # what the agent does, as the store was told


PATIENT = (SESSION_START, PROMPT, STOP, WAKE, None)  # calls that wait for another one; None only tells an activity


class Credentials(NamedTuple):
    """The session that the hook keeps open for its agent."""

    session_id: str
    session_secret: str


class Fault(NamedTuple):
    """The latest failure of a hook."""

    hook_id: str
    agent_id: str  # empty for a person
    project_root: str
    error: str
    at: float  # unix time
    refused: str = ""  # the commit or push that a hook of git refused for it
    passed: str = ""  # the one that it did not check


def hook_id(agent_id: str, root: str) -> str:
    """Return the name of the files of an agent's hook in a project."""
    return hashlib.sha256(f"{agent_id}\0{root}".encode()).hexdigest()


def _file(home: Path, call: HookCall, kind: str) -> Path:
    return home / "hooks" / f"{hook_id(call.agent_id, call.root)}.{kind}"


def _load(file: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(file.read_text())
        if isinstance(content, dict):
            return content
    return {}  # a lost or broken memory costs one repeated notice, or one more session


def _save(file: Path, content: dict[str, Any]) -> None:
    private_directory(file.parent)
    files.replace(file, json.dumps(content).encode())


@contextlib.contextmanager
def lock(home: Path, call: HookCall) -> Iterator[bool]:
    """Yield whether no other call for this agent is inside; the system frees the lock of a process that died.

    At the start of a session or of a turn, when the agent would stop, and when it is to be woken, wait for the other
    call: no later call would say what this one has to say, or not in time.
    """
    try:
        import fcntl
    except ImportError:  # without it a notice may be printed twice
        yield True
        return
    file = _file(home, call, "lock")
    private_directory(file.parent)
    with os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | (0 if call.event in PATIENT else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def take_place(home: Path, call: HookCall) -> tuple[Path, int]:
    """Make this process the waiter of the call's session: an older one sees that its place is taken, and ends. Return
    the place, and its descriptor, which stays open when the process becomes another program."""
    import fcntl

    place = _place(home, call)
    private_directory(place.parent)
    for old in place.parent.glob(f"{hook_id(call.agent_id, call.root)}.*.{WAITER}"):
        if not _is_held(old):
            old.unlink(missing_ok=True)
    new = place.with_suffix(f".{os.getpid()}")
    held = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)
    os.set_inheritable(held, True)
    new.replace(place)
    return place, held


def has_waiter(home: Path, call: HookCall) -> bool:
    """Return whether a waiter of the call's session is at work."""
    return _is_held(_place(home, call))


def leave_place(home: Path, call: HookCall) -> bool:
    """Let the waiter of the call's session end, if there is one. Return whether that of another session of the agent is
    at work: there the agent goes on."""
    _place(home, call).unlink(missing_ok=True)
    return bool(waiting_hooks(home, hook_id(call.agent_id, call.root)))


def _place(home: Path, call: HookCall) -> Path:
    return _file(home, call, f"{hashlib.sha256(call.session.encode()).hexdigest()[:16]}.{WAITER}")


def waiting_hooks(home: Path, name: str = "*") -> set[str]:
    """Return the ids of the hooks whose waiter is at work on this machine: of all, or of one."""
    return {file.name.partition(".")[0] for file in (home / "hooks").glob(f"{name}.*.{WAITER}") if _is_held(file)}


def _is_held(file: Path) -> bool:
    """Return whether a process holds a waiter's file."""
    import fcntl

    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def load(home: Path, call: HookCall) -> HookMemory:
    """Return the stored memory; a new one if there is none."""
    try:
        return HookMemory(**_load(_file(home, call, "told.json")))
    except TypeError:
        return HookMemory()


def save(home: Path, call: HookCall, memory: HookMemory) -> None:
    """Store the memory in one step: another call of the hook sees the old one or the new."""
    _save(_file(home, call, "told.json"), vars(memory))


FAULT, DISMISSED, WAITER = "fault.json", "dismissed", "waiter"
FAULT_SECONDS = 300  # that a failure is shown at least, however soon the hook works again
MOST_FAULTS = 500  # that are kept


def record_fault(home: Path, agent_id: str, root: str, error: str, refused: str = "", passed: str = "") -> None:
    """Store a failure of an agent's hook, for the operator's pages and `nexus doctor`; or of git's, which `refused` a
    commit or a push, or let it pass."""
    verb = refused or passed
    name = hook_id(f"{agent_id}\0{verb}" if verb else agent_id, root)
    about = {"agent_id": agent_id, "project_root": root, "error": error, "at": time.time()}
    _save(home / "hooks" / f"{name}.{FAULT}", {**about, "refused": refused, "passed": passed})
    for old in _fault_files(home)[MOST_FAULTS:]:
        old.unlink(missing_ok=True)


def _fault_files(home: Path) -> list[Path]:
    """Return the files of failures, the latest first."""
    return sorted((home / "hooks").glob(f"*.{FAULT}"), key=lambda file: _modified(file) or 0.0, reverse=True)


def clear_fault(home: Path, call: HookCall) -> None:
    """Remove a failure that is some time ago: the hook works again."""
    file = _file(home, call, FAULT)
    with contextlib.suppress(OSError):
        if time.time() - file.stat().st_mtime > FAULT_SECONDS:
            file.unlink()


def faults(home: Path) -> Iterator[Fault]:
    """Yield the stored failures, latest first."""
    for file in _fault_files(home)[:MOST_FAULTS]:
        with contextlib.suppress(TypeError, ValueError):
            found = Fault(file.name.removesuffix(f".{FAULT}"), **_load(file))
            texts = (*found[:4], found.refused, found.passed)
            if all(isinstance(each, str) for each in texts) and 0 < found.at < time.time() + FAULT_SECONDS:
                yield found


def last_run(home: Path, name: str) -> float | None:
    """Return when the hook of this name last stored something, in unix time; None if it never ran. A hook that is
    called stores at least twice a minute."""
    return _modified(home / "hooks" / f"{name}.told.json")


def dismiss(home: Path, name: str) -> None:
    """Record that an operator knows of the problem with this hook."""
    private_directory(home / "hooks")
    files.replace(home / "hooks" / f"{name}.{DISMISSED}", b"")


def dismissed_at(home: Path, name: str) -> float | None:
    """Return when that was, in unix time; None if it was not."""
    return _modified(home / "hooks" / f"{name}.{DISMISSED}")


def _modified(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def credentials(home: Path, call: HookCall) -> Credentials | None:
    """Return the session that is kept open, if any."""
    try:
        return Credentials(**_load(_file(home, call, "session.json")))
    except TypeError:
        return None


def keep_credentials(home: Path, call: HookCall, session: Credentials) -> None:
    """Store the session."""
    _save(_file(home, call, "session.json"), session._asdict())
