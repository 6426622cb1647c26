"""Which process listens on a port, where the system shows it: Linux does in /proc, for processes that one may
inspect."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
LISTENING = "0A"


def listener_of(port: int) -> str | None:
    """Return the process that listens on a TCP port, for people: `python (process 4711)`; None where it is unknown."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    if not sockets:
        return None
    for process in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or belongs to another user
            if any(str(entry.readlink()) in sockets for entry in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (process {process.name})"
    return None


def _listening(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]
