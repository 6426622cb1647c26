"""Files that are ours among those of a person: written, brought up to date and taken away, all of them or none.

A file of ours carries a line with the hash of the rest. Where that line is missing the file is somebody's own; where
the hash is another, somebody changed it. Both are left as they are.
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
READABLE = 0o644  # agents are no secret, and belong into the repository
LARGEST = 2**20  # bytes of a file that is looked at


@dataclass(frozen=True)
class Change:
    """What a file holds, and what it would hold; None where there is none."""

    file: Path
    before: str | None
    after: str | None

    @property
    def diff(self) -> str:
        """The change for people to read."""
        return files.diff(self.file, self.before, self.after)


@dataclass(frozen=True)
class Plan:
    """What is to be done in a directory of agents."""

    changes: tuple[Change, ...]
    unchanged: tuple[Path, ...]
    left: Mapping[Path, str]  # with why


def marked(text: str) -> str:
    """A text with the line that says that it is ours."""
    text = _with_plain_ends(text)
    head = "---\n" if text.startswith("---\n") else ""
    return f"{head}# Written by `nexus planning install` (sha256:{_hash(text)})\n{text.removeprefix(head)}"


def _whose(text: str) -> str | None:
    """Why a text is not ours to change; None for one that is."""
    mark = MARK.match(text)
    if mark is None:
        return "it is not from here: move it away, or use another name"
    rest = (mark[1] or "") + text[mark.end() :]
    return None if _hash(rest) == mark[2] else "it was changed by hand since it was written"


def _with_plain_ends(text: str) -> str:
    """A text with one kind of line ends: version controls check out the other."""
    return text.replace("\r\n", "\n")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def plan(directory: Path, suffix: str, wanted: Mapping[str, str], within: Path | None) -> Plan:
    """What brings the files of ours in a directory to `wanted`, texts by file name: others of ours go.

    `within`: the project that the directory must lie in, links followed. Raises CONFIG_ERROR for a directory that leads
    out of it, that is none, or that cannot be read.
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
        for place in (directory, *directory.parents):
            if place.is_symlink() and not place.exists():
                _refuse(place, "is a link to nothing")
            if place.exists() and not place.is_dir():
                _refuse(place, "is no directory")
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        _refuse(directory, f"cannot be read ({type(error).__name__})")


def _read(file: Path) -> str | None:
    """The text of a file; one of a kind that we never write for what is no regular one, None where there is none."""
    try:
        kind = file.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(kind) or file.stat().st_size > LARGEST:
        return ""
    return file.read_bytes().decode("utf-8", errors="replace")


@contextlib.contextmanager
def applied(changes: Iterable[Change], directory: Path) -> Iterator[None]:
    """Make the changes; when that fails, or what is done inside, everything is put back as it was.

    A `directory` of agents that is left empty goes, and the client's around it.
    Two at once need a lock: each would take what the other wrote for its own to put back. Raises CONFIG_ERROR, naming
    the file, for one that cannot be written or is no longer what it was.
    """
    made: list[Change] = []
    try:
        for change in changes:
            try:
                now = _read(change.file)
                if now == change.after:
                    continue  # another of these was here first
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


def _refuse(place: Path, why: str) -> NoReturn:
    raise NexusError(Code.CONFIG_ERROR, f"{place} {why}. Nothing was changed.", {"file": str(place)})
