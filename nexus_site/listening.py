"""Listening on a port, and who listens there already."""

from __future__ import annotations

import argparse
import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import whole_number
from nexus_site.serving import bounds

PROC = Path("/proc")
LISTENING = "0A"
LOOPBACK = "127.0.0.1"
BACKLOG = 1024  # connections that wait to be accepted
MOST = 65_535  # the last port
MOST_TRIED = 100  # ports, until a free one is found


def free_port(first: int) -> int:
    """Return the first port from this one on that nobody listens on. Raises CONFIG_ERROR where many are taken."""
    for port in range(first, min(first + MOST_TRIED, MOST)):
        with contextlib.suppress(NexusError), listen(LOOPBACK, port, ""):
            return port
    raise NexusError(Code.CONFIG_ERROR, f"No port from {first} on is free. Choose another --port.")


def port_number(text: str) -> int:
    """Return the port that a person typed. Raises what argparse shows."""
    port = whole_number(text, MOST)
    if port is None:
        raise argparse.ArgumentTypeError(f"use a whole number from 0 to {MOST}")
    return port


def listen(host: str, port: int, advice: str) -> socket.socket:
    """Return a socket that listens; `advice` ends the message of the CONFIG_ERROR where that is impossible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux; its connections inherit it
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, bounds.UNREAD_SECONDS * 1000)
        listening.bind(address)
        listening.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "not a host name"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            why = f"{listener_of(port) or 'another process'} listens there already"
        raise NexusError(Code.CONFIG_ERROR, f"Cannot listen on {host}:{port}: {why}. {advice}") from None
    listening.setblocking(False)
    return listening


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
