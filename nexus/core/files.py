"""Atomic writes of files, the answers of paths that were touched before a call, and kinds of file systems.

Standard library alone: a hook and a relay start with it, before Django.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

PRIVATE = 0o600  # readable and writable by its owner alone


def own_user() -> int | None:
    """Return the user of this process, if the system knows users."""
    return os.geteuid() if hasattr(os, "geteuid") else None


@contextmanager
def draft(destination: Path) -> Iterator[Path]:
    """Yield a private empty file in the directory of `destination`; it is removed at the end unless it was moved away.
    Raises OSError."""
    path = destination.with_name(f".{destination.name}.{os.urandom(4).hex()}.partial")  # tempfile is slow to import
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE))
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def replace(path: Path, content: bytes, *, mode: int = PRIVATE, durable: bool = False) -> None:
    """Replace a file's content in one step: a concurrent reader gets the old content or the new.

    With `durable` that is also true after a power cut. Raises OSError; then the file is unchanged, and no draft is
    left.
    """
    with draft(path) as new:
        new.write_bytes(content)
        if mode != PRIVATE:
            new.chmod(mode)
        if durable:
            sync(new)
        new.replace(path)


def diff(path: Path, before: str | None, after: str | None) -> str:
    """Return a change of a file for people to read; None stands for no file. Empty if nothing changes."""
    import difflib  # a hook starts without it

    old, new = ((text or "").splitlines(keepends=True) for text in (before, after))
    old_name, new_name = ("/dev/null" if text is None else str(path) for text in (before, after))
    lines = difflib.unified_diff(old, new, old_name, new_name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


class Change(NamedTuple):
    """The text of a file before and after; None if there is no file."""

    file: Path
    before: str | None
    after: str | None

    @property
    def diff(self) -> str:
        """The change as a readable diff; empty if there is none."""
        return diff(self.file, self.before, self.after)


def publish(path: Path, destination: Path) -> None:
    """Give a finished file its name, atomically and durably. Raises FileExistsError if the name is taken."""
    sync(path)
    try:
        os.link(path, destination)  # unlike a rename, a link never replaces
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        path.rename(destination)
    sync(destination.parent)


def sync(path: Path) -> None:
    """Write a file, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


MOUNTS = Path("/proc/self/mountinfo")
NETWORK = frozenset(("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"))
ESCAPED = re.compile(rb"\\([0-7]{3})")


def network_kind(path: Path) -> str | None:
    """Return the kind of the network file system that a path is on, such as "nfs4"; None if it is on none, or the
    system does not say."""
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
    """A parameter that leads outside the store, and what it led to when it was touched before the call; None if that
    failed. Whoever uses it does not have to wait for anything outside."""

    __slots__ = ("led_to",)
    led_to: Any

    def __new__(cls, text: str, led_to: Any) -> Reached:
        made = super().__new__(cls, text)
        made.led_to = led_to
        return made
