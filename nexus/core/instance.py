"""A server's files in its home: the lock that makes it the only one, and the key that signs its sessions."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from nexus.core import files
from nexus.core.operations.errors import Code, NexusError

LOCK, HOLDER, SECRET = "serve.lock", "serve.json", "secret_key"
LOGINS = "logins"  # of codes that log an operator in: files that are named by their hashes
LOGIN_SECONDS = 900
LOOK = "serve.look"  # a lock on trying LOCK: held for a moment, so that nobody takes another's look for a server


@dataclass(frozen=True)
class Holder:
    """The server of a home: its process and its addresses."""

    pid: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """The address of the server for a client on this machine."""
        return local_address(self.host)

    @property
    def url(self) -> str:
        """The URL of the server for a client on this machine."""
        return local_url(self.host, self.port)


def local_address(host: str) -> str:
    """Return the address at which a client on this machine reaches a server bound to `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  # compared with, not bound to


def local_url(host: str, port: int) -> str:
    """Return the URL at which a client on this machine reaches a server bound to `host`."""
    address = local_address(host)
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


@contextlib.contextmanager
def only_server(home: Path) -> Iterator[Callable[[str, int], None]]:
    """Make this process the home's only server within the block; it yields a function that publishes its address.

    Raises CONFIG_ERROR, which names the server that runs already. The operating system frees the lock of a process that
    died, however it died.
    """
    lock = FileLock(home / LOCK, mode=0o600)
    try:
        with FileLock(home / LOOK, mode=0o600):
            lock.acquire(blocking=False)
    except Timeout:
        holder = _read(home)
        who = f"Process {holder.pid} on {holder.host}:{holder.port}" if holder else "Another process"
        raise NexusError(
            Code.CONFIG_ERROR, f"{who} serves {home} already. Use that server, stop it, or choose another --home."
        ) from None
    try:
        (home / HOLDER).unlink(missing_ok=True)  # of a server that was killed
        yield lambda host, port: files.replace(home / HOLDER, _spelled(Holder(os.getpid(), host, port)))
    finally:
        (home / HOLDER).unlink(missing_ok=True)
        lock.release()


def running(home: Path) -> Holder | None:
    """Return the server of a home, if one runs now."""
    holder = _read(home)
    if holder is None:
        return None
    try:
        with FileLock(home / LOOK, mode=0o600), FileLock(home / LOCK, mode=0o600).acquire(blocking=False):
            return None
    except Timeout:
        return holder


def secret_key(home: Path) -> str:
    """Return the key of this home's signatures, created on first use and readable by its owner only.

    Raises CONFIG_ERROR if the file is empty, not text, or cannot be read.
    """
    path = home / SECRET
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with files.draft(path) as draft, contextlib.suppress(FileExistsError):
            draft.write_text(secrets.token_urlsafe(50))
            files.publish(draft, path)  # whole and once, whoever else starts now
    try:
        key = path.read_text("utf-8") if path.is_file() else ""
    except (OSError, UnicodeDecodeError):
        key = ""
    if not key.strip():  # not replaced: two servers that start now would sign with different keys
        raise NexusError(
            Code.CONFIG_ERROR,
            f"{path} holds no signing key. Delete it and start again: a new one is made, and everybody logs in again.",
        )
    return key


def login_code(home: Path) -> str:
    """Return a new code that logs an operator in: once, within a quarter of an hour. Whoever writes into the home is
    trusted as one."""
    folder = home / LOGINS
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for earlier in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was used meanwhile
            if time.time() - earlier.stat().st_mtime > LOGIN_SECONDS:
                earlier.unlink()
    code = secrets.token_urlsafe(32)
    files.replace(_login(home, code), b"")
    return code


def redeem(home: Path, code: str) -> bool:
    """Return whether a code logs in, and let it do so never again."""
    file = _login(home, code)
    try:
        made = file.stat().st_mtime
        file.unlink()
    except OSError:  # nobody made it, or it was used
        return False
    return time.time() - made < LOGIN_SECONDS


def _login(home: Path, code: str) -> Path:
    return home / LOGINS / hashlib.sha256(code.encode(errors="replace")).hexdigest()


def _read(home: Path) -> Holder | None:
    try:
        return Holder(**json.loads((home / HOLDER).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _spelled(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()
