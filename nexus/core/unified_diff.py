"""git's unified diff, in files and numbered lines. Never fails, whatever the diff contains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

HEAD = "diff --git "
KINDS = {"+": "added", "-": "removed", "@": "place", "\\": "place"}  # kind of a line, by its first character
PLACE = re.compile(r"@@ -([0-9]{1,9})(?:,[0-9]{1,9})? \+([0-9]{1,9})(?:,[0-9]{1,9})? @@")


class Line(NamedTuple):
    """A line of a file's diff: of its `header`, of one side (`added`, `removed`), of both (`same`), or git's (`place`).

    `old` and `new` are its numbers on the sides; 0 where it is not.
    """

    kind: str
    text: str  # with its sign
    old: int = 0
    new: int = 0


def files(diff: str) -> Iterator[list[str]]:
    """Yield the lines of each file, the one with its names first: no line of content begins like it."""
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


def numbered(lines: Sequence[str]) -> Iterator[Line]:
    """Yield the lines of a file with their kinds and numbers."""
    content, old, new = False, 0, 0
    for text in lines:
        content = content or text.startswith("@@")
        if not content:
            yield Line("header", text)
            continue
        kind = KINDS.get(text[:1], "same")
        if place := PLACE.match(text):
            old, new = int(place[1]), int(place[2])
        on_old, on_new = kind in ("removed", "same"), kind in ("added", "same")
        yield Line(kind, text, old * on_old, new * on_new)
        old, new = old + on_old, new + on_new
