"""git's unified diff, in files and numbered lines, each with git's raw record of its file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

HEAD = "diff --git "
KINDS = {"+": "added", "-": "removed", "@": "place", "\\": "place"}  # kind of a line, by its first character
PLACE = re.compile(r"@@ -([0-9]{1,9})(?:,[0-9]{1,9})? \+([0-9]{1,9})(?:,[0-9]{1,9})? @@")


class DiffLine(NamedTuple):
    """A line of a file's diff: of its `header`, of one side (`added`, `removed`), of both (`same`), or git's (`place`).

    `old` and `new` are its numbers on the sides; 0 where it is not.
    """

    kind: str
    text: str  # with its sign
    old: int = 0
    new: int = 0


class ChangedFile(TypedDict):
    """git's raw record of a file."""

    path: str
    status: Annotated[str, Field(description="A: added, D: deleted, M: modified, T: of another type.")]
    old_mode: str
    new_mode: str
    old: Annotated[str, Field(description="git's id of its content before; zeros: none.")]
    new: str
    added: Annotated[int | None, Field(description="Lines; null: it is not text.")]
    removed: int | None
    shown: Annotated[bool, Field(description="Whether the diff shows all of it.")]


class Mismatch(Exception):
    """A diff does not fit git's list of its files."""


def changed_files(raw: bytes) -> list[ChangedFile]:
    """Return the files of git's `--raw --numstat -z`, of which the end may be cut off."""
    found = dict[bytes, ChangedFile]()
    fields = iter(raw.split(b"\0")[:-1])
    for field in fields:
        if field.startswith(b":") and (name := next(fields, None)) is not None:
            old_mode, new_mode, old, new, status = field[1:].decode().split(" ")
            found[name] = {
                "path": name.decode(errors="replace"),
                "status": status,
                "old_mode": old_mode,
                "new_mode": new_mode,
                "old": old,
                "new": new,
                "added": None,
                "removed": None,
                "shown": False,
            }
        elif not field.startswith(b":"):
            added, removed, name = field.split(b"\t", 2)
            if added != b"-":
                found[name] |= {"added": int(added), "removed": int(removed)}
    return list(found.values())


def files(diff: str) -> Iterator[list[str]]:
    """Yield the lines of each section, the one with the names first: no line of content begins like it."""
    lines: list[str] = []
    for line in diff.removesuffix("\n").split("\n"):
        if line.startswith(HEAD):
            if lines:
                yield lines
            lines = [line]
        elif lines:
            lines.append(line)
    if lines:
        yield lines


def paired(diff: str, changed: Sequence[ChangedFile]) -> Iterator[tuple[ChangedFile, list[list[str]]]]:
    """Yield each file that a diff shows with its sections, of which a file of another type has two. The last ones may
    be missing. The names in headers are quoted, and therefore not used. Raises Mismatch."""
    sections = files(diff)
    for file in changed:
        found = list[list[str]]()
        for mark in _marks(file):
            if (lines := next(sections, None)) is not None:
                if not any(line.kind == "header" and line.text.startswith(mark) for line in numbered(lines)):
                    raise Mismatch(f"git's diff does not fit its list of changed files, from {file['path'][:200]!r} on")
                found.append(lines)
        if found:
            yield file, found
    if next(sections, None) is not None:
        raise Mismatch("git's diff has more than its list of changed files")


def _marks(file: ChangedFile) -> list[str]:
    """Return how a line begins that the header of each section of a file has."""
    old, new, none = file["old"], file["new"], "0" * len(file["old"])
    if file["status"] == "T":
        return [f"index {old}..{none}", f"index {none}..{new}"]
    return [f"new mode {file['new_mode']}" if old == new else f"index {old}..{new}"]


def within_bounds(diff: str, changed: Sequence[ChangedFile], cut: bool) -> tuple[str, list[ChangedFile]]:
    """Return a diff and its files, with whether the diff shows all of each. If it or their list is `cut`, what nobody
    could read is left out. Raises Mismatch."""
    if cut:
        diff = diff[: diff.rfind("\n") + 1]
        start = diff.rfind(f"\n{HEAD}") + 1
        if "\n@@ " not in diff[start:]:
            diff = diff[:start]
        listed = sum(len(_marks(file)) for file in changed)
        diff = "".join("\n".join([*lines, ""]) for lines in islice(files(diff), listed))
    pairs = list(paired(diff, changed))
    for number, (file, sections) in enumerate(pairs, 1):
        whole = len(sections) == len(_marks(file)) and not (cut and number == len(pairs))
        file["shown"] = whole and not any(line.startswith("Binary files ") for lines in sections for line in lines)
    return diff, list(changed)


def numbered(lines: Sequence[str]) -> Iterator[DiffLine]:
    """Yield the lines of a section with their kinds and numbers."""
    content, old, new = False, 0, 0
    for text in lines:
        content = content or text.startswith("@@")
        if not content:
            yield DiffLine("header", text)
            continue
        kind = KINDS.get(text[:1], "same")
        if place := PLACE.match(text):
            old, new = int(place[1]), int(place[2])
        on_old, on_new = kind in ("removed", "same"), kind in ("added", "same")
        yield DiffLine(kind, text, old * on_old, new * on_new)
        old, new = old + on_old, new + on_new
