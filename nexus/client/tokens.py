"""The token of a pool's operator: a file that only its owner can read."""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import stat
import tempfile
from pathlib import Path

API_KEY_PREFIX = "nxk_"
KEY_BYTES = 32
FORM = re.compile(rf"{API_KEY_PREFIX}[A-Za-z0-9_-]{{43}}")
DEFAULT_PORT = 8765
VARIABLE = "NEXUS_RPC_TOKEN"
HOME, HOME_VARIABLE = Path("~/.nexus"), "NEXUS_HOME"
NEXUS3_VARIABLE, NEXUS3_HOME = "NEXUS3_API_KEY", Path("~/.nexus3")  # for scripts that were written for NEXUS3
OTHERS = stat.S_IRWXG | stat.S_IRWXO
LONGEST = 1_024  # bytes of a file that holds one


class UnsafeToken(OSError):
    """A token file that others than its owner can read."""


def generate_api_key() -> str:
    """Return a new token: the prefix and 32 random bytes in URL-safe base64."""
    return API_KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def validate_api_key(presented: str, expected: str) -> bool:
    """Compare a token with the expected one, in constant time."""
    return hmac.compare_digest(presented.encode(errors="surrogateescape"), expected.encode())


def home_directory(nexus_dir: Path | None = None) -> Path:
    """Return the server's home: the one given, or `NEXUS_HOME`, or ~/.nexus."""
    return Path(nexus_dir or os.environ.get(HOME_VARIABLE) or HOME).expanduser()


def token_name(port: int) -> str:
    """Return the file name for a port."""
    return "rpc.token" if port == DEFAULT_PORT else f"rpc-{port}.token"


class ServerTokenManager:
    """A server's token, in a file that is removed at its end."""

    def __init__(
        self, port: int = DEFAULT_PORT, nexus_dir: Path | None = None, strict_permissions: bool = True
    ) -> None:
        self.port, self.home, self.strict = port, home_directory(nexus_dir), strict_permissions

    @property
    def token_path(self) -> Path:
        """The path of the token's file."""
        return self.home / token_name(self.port)

    def generate_fresh(self) -> str:
        """Create a new token and replace the old file, if any."""
        token = generate_api_key()
        self.save(token)
        return token

    def save(self, token: str, overwrite: bool = True) -> None:
        """Write a token atomically, readable only by its owner. Raises FileExistsError unless `overwrite`."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, draft = tempfile.mkstemp(prefix=f".{self.token_path.name}.", suffix=".partial", dir=self.home)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(token)
            if overwrite:
                Path(draft).replace(self.token_path)
            else:
                os.link(draft, self.token_path)
        finally:
            Path(draft).unlink(missing_ok=True)

    def load(self) -> str | None:
        """Return the token; None if there is none. Raises UnsafeToken."""
        return read_token(self.token_path, self.strict)

    def delete(self) -> None:
        """Remove the file if it exists."""
        with contextlib.suppress(OSError):
            self.token_path.unlink()


def read_token(path: Path, strict: bool = True) -> str | None:
    """Return the token in a file; None if there is no such file or no token in it. Raises UnsafeToken.

    The permissions are checked on the open file, so that the file that is read is the one that was checked.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        if strict and (status.st_mode & OTHERS or status.st_uid not in (os.geteuid(), 0)):
            raise UnsafeToken(f"{path} can be read by others than you: chmod 600 it, or start the server again.")
        text = os.read(handle, LONGEST).decode("ascii", "replace").strip()
    finally:
        os.close(handle)
    return text if FORM.fullmatch(text) else None


def discover_rpc_token(
    port: int = DEFAULT_PORT, nexus_dir: Path | None = None, strict_permissions: bool = True
) -> str | None:
    """Return a client's token: from the environment, else from the port's file, else from the default one; else from
    where NEXUS3 keeps its own, in the same order. Raises UnsafeToken."""
    names = dict.fromkeys((f"rpc-{port}.token", token_name(DEFAULT_PORT)))
    for variable, home in ((VARIABLE, home_directory(nexus_dir)), (NEXUS3_VARIABLE, NEXUS3_HOME.expanduser())):
        if token := os.environ.get(variable):
            return token
        for name in names:
            if token := read_token(home / name, strict_permissions):
                return token
    return None
