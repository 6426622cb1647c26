"""Our files among a person's: written, updated and removed, all of them or none.

Each file of ours has a line with the hash of the rest. A file without that line belongs to somebody else; one with
another hash was changed by somebody. Both are left as they are.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from nexus.core import files
from nexus.core.operations.errors import Code, NexusError

MARK = re.compile(r"\A(---\n)?# Written by `nexus planning install` \(sha256:([0-9a-f]{64})\)\n")
READABLE = 0o644  # agents are not secret, and belong into the repository
LARGEST = 2**20  # bytes of a file that are read


@dataclass(frozen=True)
class Change:
    """The old and the new content of a file; None where there is none."""

    file: Path
    before: str | None
    after: str | None

    @property
    def diff(self) -> str:
        """The change as a diff for people."""
        return files.diff(self.file, self.before, self.after)


@dataclass(frozen=True)
class Plan:
    """The changes to make in a directory of agents."""

    changes: tuple[Change, ...]
    unchanged: tuple[Path, ...]
    left: Mapping[Path, str]  # each with the reason


def marked(text: str) -> str:
    """Return a text with the line that marks it as ours."""
    text = _with_plain_ends(text)
    head = "---\n" if text.startswith("---\n") else ""
    return f"{head}# Written by `nexus planning install` (sha256:{_hash(text)})\n{text.removeprefix(head)}"


def _whose(text: str) -> str | None:
    """Return why a text must not be changed; None for one of ours."""
    mark = MARK.match(text)
    if mark is None:
        return "it was not written by Nexus: move it away, or use another name"
    rest = (mark[1] or "") + text[mark.end() :]
    return None if _hash(rest) == mark[2] else "it was changed by hand since it was written"


def _with_plain_ends(text: str) -> str:
    """Return a text with Unix line ends: version control may check out others."""
    return text.replace("\r\n", "\n")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plan(directory: Path, suffix: str, wanted: Mapping[str, str], within: Path | None) -> Plan:
    """Return the changes that bring our files in a directory to `wanted`, texts by file name; our other files are
    removed.

    `within` is the project that must contain the directory, with links resolved. Raises CONFIG_ERROR for a directory
    outside of it, for one that is not a directory, and for one that cannot be read.
    """
    _check(directory, within)
    try:
        there = sorted(file.name for file in directory.glob(f"*{suffix}")) if directory.is_dir() else []
        found = {name: _read(directory / name) for name in {*there, *wanted}}
    except OSError as error:
        _refuse(directory, f"cannot be read ({type(error).__name__})")
    changes: list[Change] = []
    unchanged: list[Path] = []
    left: dict[Path, str] = {}
    for name, before in sorted(found.items()):
        file, after, text = directory / name, wanted.get(name), _with_plain_ends(before or "")
        why = None if before is None else _whose(text)
        if why:
            if after is not None or MARK.match(text):
                left[file] = why
        elif text == after:
            unchanged.append(file)
        else:
            changes.append(Change(file, before, after))
    return Plan(tuple(changes), tuple(unchanged), left)


def _check(directory: Path, within: Path | None) -> None:
    try:
        if within and not directory.resolve().is_relative_to(within.resolve()):
            _refuse(directory, f"leads out of {within}")
        for path in (directory, *directory.parents):
            if path.is_symlink() and not path.exists():
                _refuse(path, "is a link to nothing")
            if path.exists() and not path.is_dir():
                _refuse(path, "is no directory")
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        _refuse(directory, f"cannot be read ({type(error).__name__})")


def _read(file: Path) -> str | None:
    """Return the text of a file; for one that is not regular, a text that is never ours; None where there is none."""
    try:
        kind = file.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(kind) or file.stat().st_size > LARGEST:
        return ""
    return file.read_bytes().decode("utf-8", errors="replace")


@contextlib.contextmanager
def applied(changes: Iterable[Change], directory: Path) -> Iterator[None]:
    """Make the changes. If that or the block fails, restore the files.

    Remove the `directory` of agents if it is left empty, and then the client's directory around it. Hold a lock:
    two at once could restore each other's files. Raises CONFIG_ERROR with the file that cannot be written or has
    changed meanwhile.
    """
    made: list[Change] = []
    try:
        for change in changes:
            try:
                now = _read(change.file)
                if now == change.after:
                    continue  # another of these processes did it first
                if now != change.before:
                    _refuse(change.file, "was changed by somebody else meanwhile; run this again")
                _put(change.file, change.after)
                made.append(change)
            except OSError as error:
                _refuse(change.file, f"cannot be written ({type(error).__name__})")
        yield
    except BaseException:
        for change in reversed(made):
            with contextlib.suppress(OSError):
                if _read(change.file) == change.after:
                    _put(change.file, change.before)
        raise
    finally:
        with contextlib.suppress(OSError):
            directory.rmdir()
            directory.parent.rmdir()


def _put(file: Path, text: str | None) -> None:
    if text is None:
        file.unlink(missing_ok=True)
        return
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else READABLE
    file.parent.mkdir(parents=True, exist_ok=True)
    files.replace(file, text.encode(), mode=mode)


def _refuse(path: Path, why: str) -> NoReturn:
    raise NexusError(Code.CONFIG_ERROR, f"{path} {why}. Nothing was changed.", {"file": str(path)})
