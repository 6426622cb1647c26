"""Paths that an agent names, opened within its permissions: no symlink, `..` or race leads out.

A path is resolved first, and the result is checked (nexus/control/rules.py). Then it is walked from the root, directory
by directory, without following symlinks: a part that was replaced by a symlink after the check is refused.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import BinaryIO, TypeVar

from nexus.control import protected_paths, rules
from nexus.control.rules import Permissions
from nexus.core.waiting import OUTSIDE

T = TypeVar("T")

SECONDS = 60.0  # a file may lie on a mount that never answers
PASSING = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
LISTING = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDONLY
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO would wait for a writer


class ToolFailed(Exception):
    """A tool's failure; the message is for the agent."""


class NotThere(ToolFailed):
    """There is no such file or directory."""


class ToolRefused(ToolFailed):
    """A refusal by the agent's permissions; `rule` names the one that refuses."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


async def on_disk(function: Callable[[], T]) -> T:
    """Run a function that uses the disk on a thread that nobody else needs. Raises ToolFailed if it does not return in
    time."""
    try:
        async with asyncio.timeout(SECONDS):
            return await asyncio.get_running_loop().run_in_executor(OUTSIDE, function)
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
    return _shown(permissions, real, path)


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
    return _shown(permissions, real, path)


@contextmanager
def directory(path: str, *, flags: int = PASSING, made_below: tuple[str, ...] = ()) -> Iterator[int]:
    """Yield a descriptor of a directory, by its real path; create those at or below `made_below`. Raises ToolFailed."""
    with failing(path):
        at = os.open("/", flags if path == "/" else PASSING)
        try:
            parts = PurePath(path).parts[1:]
            for number, part in enumerate(parts):
                if made_below and rules.within("/" + "/".join(parts[: number + 1]), made_below):
                    _make(part, at)
                inner = os.open(part, flags if number + 1 == len(parts) else PASSING, dir_fd=at)
                os.close(at)
                at = inner
            yield at
        finally:
            os.close(at)


@contextmanager
def file(path: str) -> Iterator[BinaryIO]:
    """Yield a regular file, by its real path, open for reading. Raises ToolFailed."""
    parent, name = os.path.split(path)
    with directory(parent) as at, failing(path), open_file(name, at) as opened:
        yield opened


def open_file(name: str, at: int) -> BinaryIO:
    """Open a regular file of the directory `at` for reading. Raises OSError."""
    descriptor = os.open(name or ".", READING, dir_fd=at)
    try:
        if stat.S_ISDIR(mode := os.fstat(descriptor).st_mode):
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is no regular file")
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


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


def _shown(permissions: Permissions, real: str, path: str) -> str:
    if protected_paths.is_hidden(real, permissions.cwd):
        raise ToolRefused("home", f"{path} is the hub's own, which no agent opens.")
    return real


def _make(part: str, at: int) -> None:
    try:
        os.mkdir(part, dir_fd=at)
    except FileExistsError:
        return
