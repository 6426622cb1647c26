"""Files that are there whole or not at all. Standard library alone: a hook starts with it, before Django."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE = 0o600  # readable and writable by its owner alone


@contextmanager
def draft(destination: Path) -> Iterator[Path]:
    """A private empty file beside `destination`, gone at the end unless it was moved away. Raises OSError."""
    import tempfile  # a tenth of the time of a hook that writes nothing

    handle, name = tempfile.mkstemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent)
    os.close(handle)
    path = Path(name)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def replace(path: Path, content: bytes, *, mode: int = PRIVATE, durable: bool = False) -> None:
    """Give `path` this content in one step: who reads it meanwhile gets the old content or the new.

    `durable`: so does who reads it after a power cut. Raises OSError; the file is as it was then, and no draft is left.
    """
    with draft(path) as new:
        new.write_bytes(content)
        if mode != PRIVATE:
            new.chmod(mode)
        if durable:
            sync(new)
        new.replace(path)


def read_regular(path: str, largest: int) -> bytes | None:
    """Return up to `largest` bytes of a regular file; None for anything else, a symbolic link too, without waiting."""
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        opened = os.open(path, flags)
    except (OSError, ValueError):  # a path with NUL is a ValueError
        return None
    try:
        return os.read(opened, largest) if stat.S_ISREG(os.fstat(opened).st_mode) else None
    except OSError:
        return None
    finally:
        os.close(opened)


def diff(path: Path, before: str | None, after: str | None) -> str:
    """A change of a file for people to read, None for no file; empty when there is none."""
    import difflib  # a hook starts without it

    old, new = ((text or "").splitlines(keepends=True) for text in (before, after))
    old_name, new_name = ("/dev/null" if text is None else str(path) for text in (before, after))
    lines = difflib.unified_diff(old, new, old_name, new_name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def publish(path: Path, destination: Path) -> None:
    """Give a finished file its name, atomically and durably. Raises FileExistsError when the name is taken."""
    sync(path)
    try:
        os.link(path, destination)  # unlike a rename, a link never replaces
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        path.rename(destination)
    sync(destination.parent)


def sync(path: Path) -> None:
    """Bring a file, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
