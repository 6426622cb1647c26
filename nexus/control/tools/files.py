"""An agent's files: read, write, edit and list them, within its permissions.

Every function raises ToolRefused for what the permissions do not allow, and ToolFailed for what cannot be done. A file
is replaced whole, in one step: a concurrent reader sees the old content or the new.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from itertools import islice

from nexus.control.rules import Permissions
from nexus.control.tools import paths
from nexus.control.tools.paths import ToolFailed, check_tool

LARGEST_FILE = 8 * 1024 * 1024  # bytes
MOST_ENTRIES = 2_000  # of a directory


def read_text(permissions: Permissions, path: str, *, line: int = 1, limit: int | None = None) -> str:
    """Return the text of a file, or `limit` lines of it from line `line` on, counted from 1."""
    check_tool(permissions, "read_file")
    text = _text(paths.readable(permissions, path), path)
    if line <= 1 and limit is None:
        return text
    first = max(line - 1, 0)
    return "\n".join(text.split("\n")[first : None if limit is None else first + limit])


def write_text(permissions: Permissions, path: str, content: str) -> None:
    """Create or replace a file; missing directories above it are created where the agent may write."""
    check_tool(permissions, "write_file")
    _store(permissions, paths.writable(permissions, path), content)


def edit_text(permissions: Permissions, path: str, old: str, new: str, *, everywhere: bool = False) -> int:
    """Replace a text that occurs once in a file, or `everywhere`; return the number of occurrences."""
    check_tool(permissions, "edit_file")
    paths.readable(permissions, path)
    resolved = paths.writable(permissions, path)
    text = _text(resolved, path)
    found = text.count(old) if old else 0
    if not found:
        raise ToolFailed(f"{path} does not hold the text that is to be replaced, to the letter.")
    if found > 1 and not everywhere:
        raise ToolFailed(
            f"{path} contains that text {found} times: include more of the text around it, or use replace_all."
        )
    _store(permissions, resolved, text.replace(old, new))
    return found


def list_directory(permissions: Permissions, path: str = ".") -> tuple[list[str], bool]:
    """Return the sorted names in a directory, with `/` after directories and `@` after symlinks, and whether these are
    all."""
    check_tool(permissions, "list_directory")
    resolved = paths.readable(permissions, path)
    with paths.directory(resolved, flags=paths.LISTING) as at, os.scandir(at) as entries:
        names = [_marked(entry) for entry in islice(entries, MOST_ENTRIES + 1)]
    return sorted(names[:MOST_ENTRIES]), len(names) <= MOST_ENTRIES


def decoded(data: bytes) -> str | None:
    """Return bytes as text; None if they are not text."""
    if b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _marked(entry: os.DirEntry[str]) -> str:
    name = entry.name.encode(errors="replace").decode()
    if entry.is_symlink():
        return name + "@"
    return name + "/" if entry.is_dir(follow_symlinks=False) else name


def _text(resolved: str, path: str) -> str:
    with paths.file(resolved) as opened:
        data = opened.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ToolFailed(f"{path} has over {LARGEST_FILE} bytes.")
    text = decoded(data)
    if text is None:
        raise ToolFailed(f"{path} is not UTF-8 text.")
    return text


def _store(permissions: Permissions, resolved: str, content: str) -> None:
    try:
        data = content.encode()
    except UnicodeEncodeError:
        raise ToolFailed("The content is not UTF-8 text.") from None
    if len(data) > LARGEST_FILE:
        raise ToolFailed(f"A file has {LARGEST_FILE} bytes at most; this has {len(data)}.")
    with paths.directory(permissions.cwd):  # never created again if it is gone
        pass
    parent, name = os.path.split(resolved)
    with paths.directory(parent, made_below=permissions.write_paths) as at, paths.failing(resolved):
        _replace(at, name, data)


def _replace(at: int, name: str, data: bytes) -> None:
    """Replace a file in one step. Raises OSError."""
    mode = _mode(at, name)
    unfinished = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(unfinished, flags, 0o666, dir_fd=at), "wb") as written:
            if mode is not None:
                os.fchmod(written.fileno(), mode)
            written.write(data)
        os.replace(unfinished, name, src_dir_fd=at, dst_dir_fd=at)
    except OSError:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=at)
        raise


def _mode(at: int, name: str) -> int | None:
    """Return the permissions of an existing file; None if there is none."""
    try:
        there = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(there.st_mode):
        raise ToolFailed(f"{name} exists already and is not a regular file.")
    return stat.S_IMODE(there.st_mode) & 0o777
