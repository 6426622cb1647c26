"""Ports for servers that are started later, or again where they were."""

from __future__ import annotations

import contextlib
import random
import socket

# Below those that Linux gives to connections: one that looks for a server which is not there may be given the server's
# own port, is then connected to itself, and the server cannot have it.
PORTS = range(16_384, 32_768)


def free_port() -> int:
    """A port that nobody listens on now, and no connection is given meanwhile."""
    chance = random.SystemRandom()
    while True:
        port = chance.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
