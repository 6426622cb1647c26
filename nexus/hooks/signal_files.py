"""Signal files: `{home}/signals/<sha256 of the agent's id>` changes its time when something new waits for the agent.

The file is made by whoever wants to be told; where there is none, nothing is written. Only the standard library is
imported here: a hook looks at its file before anything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path


def path(home: Path, agent_id: str) -> Path:
    """Where an agent's signal file is. Ids are free text, so a hash stands for them."""
    return home / "signals" / _name(agent_id)


def _name(agent_id: str) -> str:
    return hashlib.sha256(agent_id.encode()).hexdigest()


def private_directory(place: Path) -> None:
    """Make a directory below the home, and the home, for their owner alone."""
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    place.mkdir(exist_ok=True, mode=0o700)


def arm(home: Path, agent_id: str) -> Path:
    """Make the file, so that signals come from now on."""
    file = path(home, agent_id)
    private_directory(file.parent)
    file.touch(mode=0o600)
    return file


def stamp(home: Path, agent_id: str) -> int | None:
    """The file's time: different from an earlier one when there was a signal since. None where there is no file."""
    with contextlib.suppress(OSError):
        return path(home, agent_id).stat().st_mtime_ns
    return None


def anybody(home: Path) -> bool:
    """Whether anybody ever made a signal file here."""
    return os.path.isdir(f"{home}/signals")  # noqa: PTH112  # on the way of every message: a Path costs more


def send(home: Path, agent_id: str) -> None:
    """Signal one agent, if anybody listens for it. Never fails: a signal is a hint, the store is the truth."""
    moment = time.time_ns()  # finer than the kernel's own clock of files, so that no two signals look alike
    try:
        os.utime(f"{home}/signals/{_name(agent_id)}", ns=(moment, moment))  # a Path would cost more than the call
    except OSError:
        return
