"""A short command that the hub of the home runs: `nexus status` without the start of Django.

Standard library alone on this side, as in `relay`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from mcp_bridge.relay import PIECE, NoHub, connect, hello_of, serves_itself
from nexus.core.config import Resolved

COMMANDS = ("send", "inbox", "status")
GO = b"go\n"  # says that this process leaves the command to the hub: it must not be run twice
STDIN = "-"  # an argument that means standard input


def run(resolved: Resolved, apps: list[str], command: str, arguments: Sequence[str]) -> int | None:
    """Have the hub run a command: its exit code, once its words are written; None where this process runs it itself."""
    if serves_itself() or STDIN in arguments:
        return None
    user = next(filter(None, map(os.environ.get, ("LOGNAME", "USER", "LNAME", "USERNAME"))), None)  # as getpass asks
    asked = {**hello_of(resolved, apps), "key": None, "command": [command, *arguments], "operator": user}
    try:
        connection, welcome, _ = connect(resolved.settings.home, asked, None)
    except NoHub:
        return None
    with connection:
        if welcome["nexus"] != "welcome":
            return None
        done = _done(connection)
    if done is None:
        sys.stderr.write("[nexus] DB_ERROR: The hub ended before it answered. This may have been done: look first.\n")
        return 1
    sys.stdout.write(done["stdout"])
    sys.stdout.flush()
    sys.stderr.write(done["stderr"])
    return int(done["code"])


def _done(connection: socket.socket) -> dict[str, Any] | None:
    """How it went; None where the hub did not say so."""
    pieces: list[bytes] = []
    try:
        connection.sendall(GO)
        while not (pieces and pieces[-1].endswith(b"\n")):
            if not (piece := connection.recv(PIECE)):
                return None
            pieces.append(piece)
    except OSError:
        return None
    told: dict[str, Any] = json.loads(b"".join(pieces))
    return told
