"""Signal files: `{home}/signals/<sha256 of the agent's id>` gets a new time when something new waits for the agent.

Whoever wants signals creates the file; without one nothing is written. Only the standard library is imported here: a
hook checks its file before anything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from nexus.hooks import waiter


def path(home: Path, agent_id: str) -> Path:
    """Return the path of an agent's signal file. Ids are free text, so the name is a hash."""
    return home / "signals" / _name(agent_id)


def _name(agent_id: str) -> str:
    return hashlib.sha256(agent_id.encode()).hexdigest()


def private_directory(path: Path) -> None:
    """Create a directory below the home, and the home, accessible only by the owner."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.mkdir(exist_ok=True, mode=0o700)


def arm(home: Path, agent_id: str) -> Path:
    """Create the file, so that signals are written from now on. One that is there keeps its time: no signal came."""
    file = path(home, agent_id)
    private_directory(file.parent)
    with contextlib.suppress(FileExistsError):
        file.touch(mode=0o600, exist_ok=False)
    return file


def stamp(home: Path, agent_id: str) -> int | None:
    """Return the file's time, which differs from an earlier one if there was a signal since; None if there is no
    file."""
    return waiter.stamp(str(path(home, agent_id)))


def anybody(home: Path) -> bool:
    """Return whether anybody ever created a signal file here."""
    return os.path.isdir(f"{home}/signals")  # noqa: PTH112  # on the way of every message: a Path costs more


def send(home: Path, agent_id: str) -> None:
    """Signal one agent, if anybody listens for it. Never fails: a signal is a hint, and the store has the truth."""
    moment = time.time_ns()  # finer than the kernel's clock for files, so that two signals differ
    try:
        os.utime(f"{home}/signals/{_name(agent_id)}", ns=(moment, moment))  # a Path would take longer than the call
    except OSError:
        return
