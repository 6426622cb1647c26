"""An agent's files: paths within its permissions, and the tools that read, write, edit and list.

Every function raises ToolRefused for what the permissions do not allow, and ToolFailed for what cannot be done. A file
is replaced whole, in one step: a concurrent reader sees the old content or the new.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TypeVar

from nexus.control.models import PoolAgent
from nexus.control.permissions import protected_paths, rules
from nexus.control.permissions.rules import Permissions
from nexus.control.runners.base import in_share
from nexus.core import foreign_files

LARGEST_FILE = 8 * 1024 * 1024  # bytes
MOST_ENTRIES = 2_000  # of a directory


def read_text(permissions: Permissions, path: str, *, line: int = 1, limit: int | None = None) -> str:
    """Return the text of a file, or `limit` lines of it from line `line` on, counted from 1."""
    check_tool(permissions, "read_file")
    text = _text(readable(permissions, path), path)
    if line <= 1 and limit is None:
        return text
    first = max(line - 1, 0)
    return "\n".join(text.split("\n")[first : None if limit is None else first + limit])


def write_text(permissions: Permissions, path: str, content: str) -> None:
    """Create or replace a file; missing directories above it are created where the agent may write."""
    check_tool(permissions, "write_file")
    _store(permissions, writable(permissions, path), content)


def edit_text(permissions: Permissions, path: str, old: str, new: str, *, everywhere: bool = False) -> int:
    """Replace a text that occurs once in a file, or `everywhere`; return the number of occurrences."""
    check_tool(permissions, "edit_file")
    readable(permissions, path)
    resolved = writable(permissions, path)
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
    resolved = readable(permissions, path)
    with failing(resolved), foreign_files.directory(resolved) as at, os.scandir(at) as entries:
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
    with failing(path):
        text = decoded(foreign_files.read_file(resolved, largest=LARGEST_FILE))
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
    with failing(permissions.cwd), foreign_files.directory(permissions.cwd):  # never created again if it is gone
        pass
    with failing(resolved):
        may_make = partial(rules.within, roots=permissions.write_paths)
        foreign_files.replace(resolved, data, may_make=may_make)


T = TypeVar("T")

SECONDS = 60.0  # a file may lie on a mount that never answers


class ToolFailed(Exception):
    """A tool's failure; the message is for the agent."""


class NotThere(ToolFailed):
    """There is no such file or directory."""


class ToolRefused(ToolFailed):
    """A refusal by the agent's permissions; `rule` names the one that refuses."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


async def on_disk(agent: PoolAgent, function: Callable[[], T]) -> T:
    """Run a function that uses the disk for an agent, as `in_share` does. Raises ToolFailed if it does not return in
    time."""
    try:
        async with asyncio.timeout(SECONDS):
            return await in_share(agent, function)
    except TimeoutError:
        raise ToolFailed(f"It took longer than {SECONDS:g} seconds.") from None


def check_tool(permissions: Permissions, tool: str) -> None:
    """Check that the agent has this tool. Raises ToolRefused."""
    if not rules.may_use(permissions, tool):
        raise ToolRefused("tools", f"This agent ({permissions.preset}) does not have the tool {tool}.")


def resolved(permissions: Permissions, path: str) -> str:
    """Return the real path that is meant; a relative one starts at the agent's directory. Raises ToolFailed."""
    try:
        real = os.path.realpath(os.path.join(permissions.cwd, path))
        real.encode()
    except (OSError, ValueError):
        raise ToolFailed("This is no path.") from None
    return real


def readable(permissions: Permissions, path: str) -> str:
    """Return the real path of what an agent wants to read; a relative one starts at its directory. Raises
    ToolFailed."""
    real = resolved(permissions, path)
    if not rules.may_read(permissions, real):
        raise ToolRefused("cwd", f"{path} does not lie below the agent's directory, {permissions.cwd}.")
    return _display_path(permissions, real, path)


def writable(permissions: Permissions, path: str) -> str:
    """Return the real path of what an agent wants to write. Raises ToolFailed."""
    real = resolved(permissions, path)
    if rules.is_gits(real, permissions.write_paths):
        raise ToolRefused(
            "git", f"{path} is git's: no agent writes in a .git, or a HEAD, that was not given it by name."
        )
    if not rules.may_write(permissions, real):
        allowed = ", ".join(permissions.write_paths) or "nowhere"
        raise ToolRefused("write_paths", f"{path} may not be written; this agent writes below: {allowed}.")
    return _display_path(permissions, real, path)


@contextmanager
def failing(path: str) -> Iterator[None]:
    """Turn OSError into a ToolFailed with a message for the agent."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ToolRefused("symlinks", f"{path} leads through a symlink that was not there before.") from None
        failed = NotThere if error.errno == errno.ENOENT else ToolFailed
        raise failed(f"{path}: {error.strerror or 'cannot be used'}.") from None


def _display_path(permissions: Permissions, real: str, path: str) -> str:
    if protected_paths.is_hidden(real, permissions.cwd):
        raise ToolRefused("home", f"{path} is the hub's own, which no agent opens.")
    return real
