"""git's unified diff as a page shows it: by file, in one or two columns."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from html import escape
from itertools import groupby, islice, pairwise

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from nexus.core import unified_diff
from nexus.core.unified_diff import ChangedFile
from nexus.web.highlighting import Pieces, highlighted, lexer_of
from nexus.web.templatetags.nexus import plain

MOST_FILES, MOST_LINES, MOST_OF_ONE = 200, 2_000, 1_000  # shown at most: files, lines in all, lines of a file
LONGEST = 500  # characters of a line
OPENED = 400  # lines after which files are folded
MARK_SECONDS = 0.1  # of CPU time, in which the changed words of a page are found
MOST_WORDS = 60  # of a line between the first and the last change; more are one change
ALIKE = 0.3  # part of the longer line that two lines share; if it is less, no words are marked
WORD = re.compile(r"\w+|\s+|.", re.DOTALL)
POINTER = re.compile(r"version https://git-lfs\.github\.com/spec/v1|(ext-[0-9]-\w+|oid|size) \S+")  # lines of Git LFS
MODES = {"120000": "symbolic link", "160000": "submodule"}
WHAT = {"A": "new", "D": "deleted", "T": "another type"}  # by git's status
VIEWS = ("unified", "split")
COOKIE = "nexus_diff"
YEAR = 365 * 24 * 3600  # seconds


@dataclass(eq=False)
class DiffRow:
    """A line: of one side, of both (`same`), or of git (`place`). `below` is HTML that stands under it."""

    kind: str
    text: str  # without its sign
    old: int = 0  # its number on each side; 0 where it is not
    new: int = 0
    more: int = 0  # characters that are not shown
    unended: bool = False  # the file ends here, without a line feed
    pieces: Pieces = field(default_factory=list)  # the syntax
    marks: list[tuple[int, int]] = field(default_factory=list)  # the changed words, from and to
    below: SafeString = field(default_factory=SafeString)


@dataclass(eq=False)
class DiffFile:
    """A file, with as many of its lines as a page shows."""

    name: str
    number: int = 1
    what: str = ""  # new, deleted, another type
    kind: str = ""  # what it is if it is no common file
    notes: list[str] = field(default_factory=list)  # git's about its mode
    binary: bool = False
    added: int = 0
    removed: int = 0
    rows: list[DiffRow] = field(default_factory=list)
    hidden: int = 0  # lines that are not shown
    cut: bool = False  # the diff does not have all of it
    opened: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether all of it is shown."""
        return not (self.binary or self.cut or self.hidden or any(row.more for row in self.rows))

    @property
    def unified(self) -> SafeString:
        """The lines as HTML, in one column."""
        return mark_safe("".join(_row(self, row) for row in self.rows))  # noqa: S308  # escaped piece by piece

    @property
    def split(self) -> SafeString:
        """The lines as HTML, old and new side by side.

        The lines of a block are in the order of one column. CSS puts each side's into its column, or, on a narrow
        screen, leaves them where they are and hides the first copy of what both sides have.
        """
        parts = []
        for kind, rows in groupby(self.rows, key=lambda row: row.kind if row.kind in ("place", "same") else "change"):
            if kind == "place":
                parts += [_row(self, row) for row in rows]
            elif kind == "same":
                parts += [f"<div>{_copy(row)}{_row(self, row, both=False)}</div>" for row in rows]
            else:
                parts += ["<div>", *(_row(self, row) for row in rows), "</div>"]
        return mark_safe("".join(parts))  # noqa: S308  # escaped piece by piece


@dataclass(frozen=True)
class Changes:
    """All files of a diff."""

    files: list[DiffFile]
    unshown: Sequence[str] = ()  # names of files that are not shown
    added: int = 0  # lines, in all files
    removed: int = 0

    @property
    def unseen(self) -> list[str]:
        """The files of which not all is shown."""
        return [*(file.name for file in self.files if not file.is_whole), *self.unshown]


def read_diff(diff: str, changed: Sequence[ChangedFile]) -> Changes:
    """Return the files of a diff. Raises Mismatch."""
    files: list[DiffFile] = []
    shown = 0
    for file, sections in islice(unified_diff.paired(diff, changed), MOST_FILES):
        about = DiffFile(file["path"], len(files) + 1, WHAT.get(file["status"], ""))
        about.kind = MODES.get(file["new_mode"], "") or MODES.get(file["old_mode"], "")
        about.added, about.removed = file["added"] or 0, file["removed"] or 0
        for lines in sections:
            _read(about, lines[1:], min(MOST_OF_ONE, MOST_LINES - shown))
        about.cut = not (about.binary or file["shown"])
        if about.rows[1:] and all(POINTER.fullmatch(row.text) for row in about.rows if row.kind != "place"):
            about.kind = "Git LFS pointer"
        about.opened = shown < OPENED
        shown += len(about.rows)
        files.append(about)
    _mark_words(files)
    _mark_syntax(files)
    added, removed = (sum(file[side] or 0 for file in changed) for side in ("added", "removed"))
    return Changes(files, [file["path"] for file in changed[len(files) :]], added, removed)


def view_of(request: HttpRequest) -> str:
    """Return the view that the address names, or else the one that was chosen last."""
    asked = request.GET.get("view") or request.COOKIES.get(COOKIE)
    return asked if asked in VIEWS else VIEWS[0]


def remember_view(request: HttpRequest, response: HttpResponse) -> None:
    """Keep the view that the address names, in a cookie."""
    if (view := request.GET.get("view")) in VIEWS:
        response.set_cookie(COOKIE, view, max_age=YEAR, path=reverse("admin:index"), httponly=True, samesite="Lax")


def _read(changed: DiffFile, lines: Sequence[str], most: int) -> None:
    """Add the lines of a section."""
    for line in unified_diff.numbered(lines):
        if line.kind == "header":
            if line.text.startswith(("old mode ", "new mode ")):
                changed.notes.append(line.text)
            changed.binary |= line.text.startswith("Binary files ")
        elif line.text.startswith("\\") and changed.rows and not changed.hidden:
            changed.rows[-1].unended = True
        elif len(changed.rows) < most:
            text = line.text if line.kind == "place" else line.text[1:]
            row = DiffRow(line.kind, text[:LONGEST], line.old, line.new, more=max(0, len(text) - LONGEST))
            changed.rows.append(row)
        else:
            changed.hidden += 1


def _mark_words(files: Sequence[DiffFile]) -> None:
    """Mark what differs between a removed line and the added line that took its place."""
    until = time.thread_time() + MARK_SECONDS
    for file in files:
        runs = [(kind, list(rows)) for kind, rows in groupby(file.rows, key=lambda row: row.kind)]
        for (kind, removed), (other, added) in pairwise(runs):
            if (kind, other) == ("removed", "added"):
                for before, after in zip(removed, added, strict=False):
                    if time.thread_time() > until:
                        return
                    before.marks, after.marks = _changed_words(before.text, after.text)


def _changed_words(before: str, after: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the parts that differ, from and to, of each text."""
    old, new = WORD.findall(before), WORD.findall(after)
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    olds, news = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(olds), len(news)) <= MOST_WORDS:
        matcher = SequenceMatcher(None, olds, news, autojunk=False)
        differ = [(a, b, c, d) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]
    else:
        differ = [(0, len(olds), 0, len(news))]
    return _letters(old, [(a + start, b + start) for a, b, _, _ in differ], max(len(before), len(after))), _letters(
        new, [(c + start, d + start) for _, _, c, d in differ], max(len(before), len(after))
    )


def _letters(words: Sequence[str], parts: Sequence[tuple[int, int]], longer: int) -> list[tuple[int, int]]:
    """Return parts in characters for parts in words; none where too little stays the same."""
    ends = [0]
    for word in words:
        ends.append(ends[-1] + len(word))
    marks = [(ends[a], ends[b]) for a, b in parts if a < b]
    same = ends[-1] - sum(b - a for a, b in marks)
    return marks if same >= ALIKE * longer else []


def _mark_syntax(files: Sequence[DiffFile]) -> None:
    """Find the syntax of each side of each hunk, since one alone can be read as code."""
    sides: list[tuple[str, list[DiffRow]]] = []
    for file in files:
        if not (lexer := lexer_of(file.name)) or file.kind:
            continue
        for place, rows in groupby(file.rows, key=lambda row: row.kind == "place"):
            if not place:
                hunk = list(rows)
                for missing in ("added", "removed"):  # the new side last: what both sides have is read there
                    side = [row for row in hunk if row.kind != missing]
                    if any(row.kind not in (missing, "same") for row in hunk):
                        sides.append((lexer, side))
    answers = highlighted([(lexer, "\n".join(row.text for row in side)) for lexer, side in sides])
    for (_, side), lines in zip(sides, answers, strict=True):
        for row, pieces in zip(side, lines, strict=False):
            row.pieces = pieces


ELEMENTS = {"added": "ins", "removed": "del", "same": "div"}


def _row(file: DiffFile, row: DiffRow, both: bool = True) -> str:
    """Return a line with its number; with `both` numbers where it has two."""
    if row.kind == "place":
        return f'<div class="nx-place">{_code(row)}</div>'
    side, line = ("new", row.new) if row.new else ("old", row.old)
    name, element = f"f{file.number}-{side}-{line}", ELEMENTS[row.kind]
    other = f"<b>{row.old}</b>" if both and row.kind == "same" else ""
    return (
        f'<{element} id="{name}" data-file="{file.number}" data-side="{side}" data-line="{line}">'
        f'{other}<a href="#{name}" tabindex="-1">{line}</a>{_code(row)}{row.below}</{element}>'
    )


def _copy(row: DiffRow) -> str:
    """Return the old side of a line that both sides have."""
    return f'<div aria-hidden="true" data-copy><b>{row.old}</b>{_code(row)}</div>'


def _code(row: DiffRow) -> str:
    more = f"<small>… ({row.more} characters more)</small>" if row.more else ""
    unended = "<small>No newline at the end of the file</small>" if row.unended else ""
    return f"<code>{_pieces(row)}{more}{unended}\n</code>"


def _pieces(row: DiffRow) -> str:
    """Return the text as HTML, with its syntax and its changed words."""
    text, at, parts = row.text, 0, []
    cuts: dict[int, str] = {}  # where a piece starts, and its class
    for length, kind in row.pieces:
        cuts[at] = kind
        at += length
    cuts.setdefault(at, "")
    inside = [edge for mark in row.marks for edge in mark]
    edges = sorted({0, len(text), *inside, *(cut for cut in cuts if cut < len(text))})
    kind, marked = "", 0
    for start, end in pairwise(edges):
        kind = cuts.get(start, kind)
        while marked < len(inside) and inside[marked] <= start:
            marked += 1
        piece = escape(plain(text[start:end]))
        piece = f'<span class="{kind}">{piece}</span>' if kind else piece
        parts.append(f"<mark>{piece}</mark>" if marked % 2 else piece)
    return "".join(parts)
