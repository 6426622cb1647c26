"""Which agents work in which client's process, so that the guard knows from whose shell a commit comes.

A client's hook and the process that serves its agent's MCP note the agent in the home, in a file for the client's
process. Its shells are started by that process, too: who walks up from one finds the file. A process is known by its
number, its start and the system's, so a number that is used again is another process. Where a system has no /proc, only
the marks are left that clients set in the environment of their shells. Standard library alone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from nexus.core import files
from nexus.core.coding_clients import CLIENTS
from nexus.hooks.signal_files import private_directory

DIRECTORY = "clients"  # in the home
DEEPEST = 64  # processes above one
SHELLS = frozenset({"sh", "ash", "bash", "dash", "ksh", "zsh", "fish"})
STARTERS = frozenset({"uv", "uvx", "env", "timeout"})
SYSTEM = frozenset({"init", "systemd", "launchd"})  # the parent of whom nobody waits for
MOST_AGENTS = 20  # of one client
MOST_TIDIED = 50  # files, each time that an agent is noted
MARKS = {name: client.mark for name, client in CLIENTS.items() if client.mark}


class Process(NamedTuple):
    """A process: its parent's number, its program's name, and what no other process has."""

    parent: int
    name: str
    key: str


def note(home: Path, process: int, agent_id: str) -> None:
    """Note that an agent works in the client that started a process. Does nothing where that is unknown: a person may
    have started it in a terminal."""
    client = _client_above(process)
    if client is None:
        return
    file = home / DIRECTORY / client.key
    agents = _agents_in(file)
    if agents[:1] != [agent_id]:
        private_directory(file.parent)
        _tidy(file.parent)
        kept = [agent_id, *(each for each in agents if each != agent_id)][:MOST_AGENTS]
        files.replace(file, json.dumps(kept).encode())


def agents_here(home: Path) -> list[str]:
    """Return the agents of the client that started this process, the latest first; none if no client did."""
    found = (_agents_in(home / DIRECTORY / each.key) for each in _above(os.getpid()))
    return next(filter(None, found), [])


def client_of_shell(environ: Mapping[str, str]) -> str | None:
    """Return the client that marked this environment as one of its shells'."""
    return next((client for client, mark in MARKS.items() if environ.get(mark)), None)


def _client_above(process: int) -> Process | None:
    for each in _above(process):
        if each.name in SYSTEM or (each.name in SHELLS and not _runs_something(each)):
            return None
        if each.name not in SHELLS | STARTERS:
            return each
    return None


def _runs_something(shell: Process) -> bool:
    """Return whether a shell was given a command; otherwise a person types in it."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{_number(shell.key)}/cmdline").read_bytes().split(b"\0")[1:-1]
        return any(not word.startswith(b"-") for word in words)
    return False


def _above(process: int) -> Iterator[Process]:
    """Yield the processes above one, the nearest first."""
    known = _process(process)
    for _ in range(DEEPEST):
        known = _process(known.parent) if known and known.parent > 1 else None
        if known is None:
            return
        yield known


def _process(number: int) -> Process | None:
    try:
        with open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123  # pathlib is slow, and a commit waits
            head, _, rest = file.read().rpartition(b")")
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
            boot = file.read(8)
        fields = rest.split()
        return Process(int(fields[1]), os.fsdecode(head.partition(b"(")[2]), f"{number}-{int(fields[19])}-{boot}")
    except (OSError, ValueError, IndexError):
        return None


def _number(key: str) -> int:
    return int(key.partition("-")[0])


def _agents_in(file: Path) -> list[str]:
    try:
        return [str(each) for each in json.loads(file.read_bytes())]
    except (OSError, ValueError, TypeError):
        return []


def _tidy(directory: Path) -> None:
    """Remove the files of clients that ended."""
    with os.scandir(directory) as entries:
        for entry in islice(entries, MOST_TIDIED):
            with contextlib.suppress(OSError, ValueError):
                known = _process(_number(entry.name))
                if known is None or known.key != entry.name:
                    os.unlink(entry.path)  # noqa: PTH108
