"""On which file system a path is, as Linux tells it. Standard library alone: relays use it, too."""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"))
ESCAPED = re.compile(rb"\\([0-7]{3})")


def network_kind(path: Path) -> str | None:
    """The kind of the network file system that a path is on, such as "nfs4"; None where it is on none, or the system
    does not tell."""
    try:
        lines = MOUNTS.read_bytes().splitlines()
    except OSError:
        return None
    real = os.path.realpath(os.fsencode(path)) + b"/"
    found: tuple[int, str] = (0, "")
    for line in lines:
        mount, _, file_system = line.partition(b" - ")
        point = ESCAPED.sub(lambda code: bytes([int(code[1], 8)]), mount.split()[4]).rstrip(b"/") + b"/"
        if real.startswith(point) and len(point) >= found[0]:  # of two at one point the later covers the other
            found = len(point), os.fsdecode(file_system.split()[0])
    return found[1] if found[1] in NETWORK else None
