"""Paths outside the store: where they led, and on which file system they are. Standard library alone, for relays."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

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


class Reached(str):
    """A parameter that leads outside the store, with what it led to when it was touched before the call; None is an
    error. Who uses that waits for nothing outside any more.
    """

    __slots__ = ("led_to",)
    led_to: Any

    def __new__(cls, text: str, led_to: Any) -> Reached:
        made = super().__new__(cls, text)
        made.led_to = led_to
        return made
