"""The hub's address on loopback, where the home can hold no unix socket.

A file in the home then holds the port and a token of the hub's run. Before the first line of a relay, each side proves
that it knows the token, without sending it: another program may listen at the port once the hub has ended. Standard
library only, as in `relay`, which imports this where there is such a file.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from nexus.core import files, foreign_files
from nexus.core.files import own_user

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

HOST = "127.0.0.1"
LONGEST = 200  # bytes of a line, either side's
NONCE = re.compile(rb"[0-9a-f]{64}")
HUB, RELAY = b"hub", b"relay"  # who proves: no side can send back the other's proof


class NotTheHub(Exception):
    """What listens at the address of the hub is no hub."""


def listen(path: Path) -> tuple[socket.socket, bytes]:
    """Return a listening socket and the token of this run, once both are in the file. Raises OSError, also where the
    file system lets others read the file."""
    listening = socket.create_server((HOST, 0))
    token = os.urandom(32).hex()
    try:
        files.replace(path, json.dumps({"port": listening.getsockname()[1], "token": token}).encode())
        if not _is_private(path):
            path.unlink()
            raise PermissionError(0, f"others can read {path}")
    except BaseException:
        listening.close()
        raise
    return listening, token.encode()


def connect(path: Path, seconds: float) -> socket.socket:
    """Return a connection to the hub in the file, which has proved that it is the hub. Raises OSError, and NotTheHub
    where something else listens."""
    port, token = _read(path)
    connection = socket.create_connection((HOST, port), seconds)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        mine, received = _nonce(), b""
        connection.sendall(mine + b"\n")
        while not received.endswith(b"\n"):
            if not (piece := connection.recv(LONGEST)) or len(received) > LONGEST:
                raise NotTheHub
            received += piece
        nonce, _, proof = received.rstrip(b"\n").partition(b" ")
        if not NONCE.fullmatch(nonce) or not hmac.compare_digest(proof, _proof(token, HUB, mine, nonce)):
            raise NotTheHub
        connection.sendall(_proof(token, RELAY, mine, nonce) + b"\n")
    except BaseException:
        connection.close()
        raise
    return connection


def _read(path: Path) -> tuple[int, bytes]:
    """Return the port and the token. Raises OSError where the file is not a hub's."""
    text = foreign_files.beginning(str(path), 1000)
    if text is None or not _is_private(path):
        raise PermissionError(0, f"{path} is no hub's")
    try:
        found = json.loads(text)
        return int(found["port"]), found["token"].encode()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise PermissionError(0, f"{path} is no hub's") from None


async def is_relay(reader: StreamReader, writer: StreamWriter, token: bytes) -> bool:
    """Return whether who connects knows the token."""
    mine = _nonce()
    try:
        theirs = (await reader.readexactly(len(mine) + 1))[:-1]
        if not NONCE.fullmatch(theirs):
            return False
        writer.write(mine + b" " + _proof(token, HUB, theirs, mine) + b"\n")
        proof = (await reader.readexactly(len(mine) + 1))[:-1]  # a proof is as long as a nonce
    except EOFError:  # it left
        return False
    return hmac.compare_digest(proof, _proof(token, RELAY, theirs, mine))


def _nonce() -> bytes:
    return os.urandom(32).hex().encode()


def _proof(token: bytes, side: bytes, nonce_of_relay: bytes, nonce_of_hub: bytes) -> bytes:
    return hmac.digest(token, b" ".join((side, nonce_of_relay, nonce_of_hub)), "sha256").hex().encode()


def _is_private(path: Path) -> bool:
    """Return whether only this user can read a file. Where the system knows no users, its directory's rights decide."""
    found = path.stat()
    return own_user() is None or (found.st_uid == own_user() and not stat.S_IMODE(found.st_mode) & 0o077)
