"""git's unified diff, cut into files and lines for a page. Never fails, whatever the diff contains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MOST_FILES, MOST_LINES, MOST_OF_ONE = 200, 2_000, 1_000  # shown at most: files, lines in all, lines of a file
LONGEST = 500  # characters of a line
OPENED = 400  # lines after which files are folded
HEAD = "diff --git "
KINDS = {"+": "added", "-": "removed", "@": "place", "\\": "place"}  # kind of a line, by its first character


@dataclass
class Changed:
    """A file, with as many of its lines as a page shows."""

    name: str
    what: str = ""  # new, deleted
    binary: bool = False
    added: int = 0
    removed: int = 0
    lines: list[tuple[str, str]] = field(default_factory=list)  # the kind, and the text with its sign
    hidden: int = 0  # lines that are not shown
    opened: bool = True


@dataclass(frozen=True)
class Changes:
    """All files of a diff."""

    files: list[Changed]
    unshown: Sequence[str]  # names of files that are not shown


def read(diff: str, names: Sequence[str]) -> Changes:
    """Return the files of a diff with `names`, as git lists them; the names in headers are quoted, and therefore not
    used."""
    files: list[Changed] = []
    shown = 0
    for number, lines in enumerate(_files(diff)):
        if number == MOST_FILES:
            break
        changed = _changed(names[number] if number < len(names) else lines[0].removeprefix(HEAD), lines, shown)
        changed.opened = shown < OPENED
        shown += len(changed.lines)
        files.append(changed)
    return Changes(files, names[len(files) :])


def _files(diff: str) -> Iterator[list[str]]:
    """Yield the lines of each file, header first: no line of content begins like a header."""
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


def _changed(name: str, lines: Sequence[str], shown: int) -> Changed:
    changed = Changed(name)
    content, most = False, min(MOST_OF_ONE, MOST_LINES - shown)
    for line in lines[1:]:
        content = content or line.startswith("@@")
        if not content:
            _note(changed, line)
            continue
        kind = KINDS.get(line[:1], "same")
        changed.added += kind == "added"
        changed.removed += kind == "removed"
        if len(changed.lines) < most:
            more = len(line) - LONGEST
            changed.lines.append((kind, f"{line[:LONGEST]}… ({more} characters more)" if more > 0 else line))
        else:
            changed.hidden += 1
    return changed


def _note(changed: Changed, line: str) -> None:
    """Apply a line of the header."""
    if line.startswith("new file"):
        changed.what = "new"
    elif line.startswith("deleted file"):
        changed.what = "deleted"
    elif line.startswith(("old mode ", "new mode ")):
        changed.lines.append(("place", line))
    elif line.startswith("Binary files "):
        changed.binary = True
