"""git's unified diff, cut into files and lines for a page: total functions, whatever stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MOST_FILES, MOST_LINES, MOST_OF_ONE = 200, 2_000, 1_000  # that are shown: files, lines of all, lines of a file
LONGEST = 500  # characters of a line
OPENED = 400  # lines after which files are folded
HEAD = "diff --git "
KINDS = {"+": "added", "-": "removed", "@": "place", "\\": "place"}  # by the first character of a line of content


@dataclass
class Changed:
    """A file, with as many of its lines as a page shows."""

    name: str
    what: str = ""  # new, deleted
    binary: bool = False
    added: int = 0
    removed: int = 0
    lines: list[tuple[str, str]] = field(default_factory=list)  # what it is, with its sign, and its text
    hidden: int = 0  # lines more
    opened: bool = True


@dataclass(frozen=True)
class Changes:
    """All of a diff."""

    files: list[Changed]
    unshown: Sequence[str]  # names of those that a bound cut off


def read(diff: str, names: Sequence[str]) -> Changes:
    """The files of a diff with `names`, as git lists them; what a header says of names is quoted, and not asked."""
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
    """The lines of each file, its header first: no line of content begins as one does."""
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
    """What a line of the header tells."""
    if line.startswith("new file"):
        changed.what = "new"
    elif line.startswith("deleted file"):
        changed.what = "deleted"
    elif line.startswith(("old mode ", "new mode ")):
        changed.lines.append(("place", line))
    elif line.startswith("Binary files "):
        changed.binary = True
