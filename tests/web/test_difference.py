"""A diff as its page shows it: whatever stands in it."""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from django.http import HttpResponse
from django.template.loader import render_to_string
from django.test import RequestFactory
from django.utils.safestring import mark_safe
from hypothesis import given, settings
from hypothesis import strategies as st

from nexus.core import unified_diff
from nexus.core.unified_diff import ChangedFile
from nexus.web import difference
from nexus.web.difference import LONGEST, MOST_FILES, MOST_LINES, MOST_OF_ONE, DiffFile, read_diff
from nexus.web.highlighting import highlighted, lexer_of
from nexus.web.templatetags.nexus import plain
from tests.conftest import examples

CONTENT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=30) | st.sampled_from(
    ["diff --git a/x b/x", "-- a/x", "++ b/x", "@@ -1 +1 @@", "Binary files a and b differ", "new file mode 1", "<b>"]
)
FILES = st.lists(st.lists(st.tuples(st.sampled_from(" +-"), CONTENT), min_size=1, max_size=8), max_size=4)
TAGS = re.compile(r"<[^>]*>")


OLD, NEW, NONE = "1" * 40, "2" * 40, "0" * 40
INDEX = f"index {OLD}..{NEW} 100644\n"


def changed(name: str, status: str = "M", old: str = "100644", new: str = "100644", **more: Any) -> ChangedFile:
    """git's raw record of a file."""
    ids = {"A": (NONE, NEW), "D": (OLD, NONE)}.get(status, (OLD, NEW))
    file = {"path": name, "status": status, "old_mode": old, "new_mode": new, "old": ids[0], "new": ids[1]}
    return cast(ChangedFile, {**file, "added": None, "removed": None, "shown": True, **more})


def every(*names: str) -> list[ChangedFile]:
    return [changed(name) for name in names]


def written(name: str, *lines: str, note: str = f"{INDEX}--- a\n+++ b\n@@ -1 +1 @@\n") -> str:
    return f"diff --git a/{name} b/{name}\n{note}" + "".join(f"{line}\n" for line in lines)


def lines_of(file: DiffFile) -> list[tuple[str, str]]:
    return [(row.kind, row.text) for row in file.rows if row.kind != "place"]


def text_of(markup: str) -> str:
    """What HTML says. Fails where a text of the diff became markup."""
    attribute = r" (id|href|class|data-[a-z]+|tabindex|aria-hidden)(=\"[^\"<>]*\")?"
    left = re.sub(f"</?(ins|del|div|code|small|mark|b|a|span)({attribute})*>", "", markup)
    assert "<" not in left and ">" not in left
    return html.unescape(left)


@given(FILES)
def test_it_gives_every_line_to_its_file(files: list[list[tuple[str, str]]]) -> None:
    names = [f"f{number}" for number in range(len(files))]
    diff = "".join(
        written(name, *(sign + text for sign, text in lines)) for name, lines in zip(names, files, strict=True)
    )
    changes = read_diff(diff, every(*names))
    assert [file.name for file in changes.files] == names
    kinds = {"+": "added", "-": "removed", " ": "same"}
    for file, lines in zip(changes.files, files, strict=True):
        assert lines_of(file) == [(kinds[sign], text) for sign, text in lines]
        assert not file.what and not file.binary
        shown = "".join(f"{plain(text)}\n" for _, text in lines)
        assert re.sub(r"(?m)^\d+", "", text_of(file.unified)) == "@@ -1 +1 @@\n" + re.sub(r"(?m)^\d+", "", shown)


@given(st.text(max_size=300))
def test_it_reads_any_text(text: str) -> None:
    changes = (
        read_diff(written("x", text), every("x")) if f"\n{unified_diff.HEAD}" not in f"\n{text}" else read_diff("", [])
    )
    for file in changes.files:
        for markup in (file.unified, file.split):
            assert "\u202e" not in text_of(markup)


def test_it_takes_names_from_the_list_and_never_from_a_header() -> None:
    diff = written('"a\\nb', "+x") + written("b b/c d", "+x")
    assert [file.name for file in read_diff(diff, every("a\nb", "b b/c d")).files] == ["a\nb", "b b/c d"]


def test_a_section_that_fits_no_file_of_the_list_is_an_error() -> None:
    other = written("b", "+x", note=f"index {OLD}..{OLD[:39]}3 100644\n@@ -1 +1 @@\n")
    for diff, files in (
        (written("a", "+x") + other, every("a", "b")),
        (written("a", "+x") * 2, every("a")),
        (other, []),
    ):
        with pytest.raises(unified_diff.Mismatch):
            read_diff(diff, files)


def test_it_tells_new_deleted_binary_empty_and_other_modes() -> None:
    diff = (
        written("a", note=f"new file mode 100644\nindex {NONE}..{NEW}\nBinary files /dev/null and b/a differ\n")
        + written("b", note=f"deleted file mode 100644\nindex {OLD}..{NONE}\n")
        + written("c", note="old mode 100644\nnew mode 100755\n")
    )
    only_mode = changed("c", new="100755")
    only_mode["new"] = OLD
    new, deleted, mode = read_diff(diff, [changed("a", "A"), changed("b", "D"), only_mode]).files
    assert (new.what, new.binary, new.is_whole, new.rows) == ("new", True, False, [])
    assert (deleted.what, deleted.binary, deleted.is_whole, deleted.rows) == ("deleted", False, True, [])
    assert (mode.notes, mode.is_whole, mode.rows) == (["old mode 100644", "new mode 100755"], True, [])


def test_it_shows_so_many_files_lines_and_characters_and_counts_the_rest() -> None:
    long = written("long", *["+x"] * (MOST_OF_ONE + 10))
    after = written("after", "+z")
    names = ["long", "after", "long", "after", *(f"cut{n}" for n in range(3))]
    changes = read_diff(long + after + long + after, every(*names))
    first, second, third, last = changes.files
    assert (len(first.rows), first.hidden) == (MOST_OF_ONE, 11)
    assert (len(second.rows), second.hidden) == (2, 0)
    assert (len(third.rows), third.hidden) == (MOST_LINES - MOST_OF_ONE - 2, 13)
    assert (last.rows, last.hidden) == ([], 2)
    assert [file.opened for file in changes.files] == [True, False, False, False]
    assert changes.unshown == ["cut0", "cut1", "cut2"] and changes.unseen == ["long", "long", *names[3:]]
    (wide,) = read_diff(written("wide", "+" + "y" * (LONGEST + 1)), every("wide")).files
    assert not wide.is_whole
    assert text_of(wide.unified).endswith("y… (1 characters more)\n")
    many = [f"f{number}" for number in range(MOST_FILES + 5)]
    changes = read_diff("".join(written(name, "+x") for name in many), every(*many))
    assert len(changes.files) == MOST_FILES and len(changes.unshown) == 5


def compared(folder: Path, before: bytes, after: bytes, name: str = "file.txt") -> DiffFile:
    """What git finds between two contents of a file."""
    for side, content in (("a", before), ("b", after)):
        (folder / side).mkdir(exist_ok=True)
        (folder / side / name).write_bytes(content)
    command = ["git", "diff", "--no-index", "--no-color", "--text", "--full-index", f"a/{name}", f"b/{name}"]
    said = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    assert said.returncode == 1, said.stderr
    diff = said.stdout.decode(errors="replace")
    old, new = re.findall(r"(?m)^index (\w+)\.\.(\w+)", diff)[0]
    (file,) = read_diff(diff, [cast(ChangedFile, changed(name) | {"old": old, "new": new})]).files
    return file


WORDS = st.text(st.sampled_from("ab \t.(<&\r\u202e\x00é"), max_size=6)
CONTENTS = st.lists(WORDS, max_size=30).map("\n".join)


@pytest.mark.usefixtures("runs_git")
@settings(max_examples=examples(60), deadline=None)
@given(before=CONTENTS, after=CONTENTS)
def test_its_numbers_and_texts_are_those_of_both_files(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str
) -> None:
    if before == after:
        return
    file = compared(tmp_path_factory.mktemp("diff"), before.encode(), after.encode())
    old, new = before.split("\n"), after.split("\n")
    for row in file.rows:
        assert (row.old > 0, row.new > 0) == {
            "removed": (True, False), "added": (False, True), "same": (True, True), "place": (False, False)
        }[row.kind]  # fmt: skip
        assert not row.old or old[row.old - 1] == row.text
        assert not row.new or new[row.new - 1] == row.text
        assert not row.unended or row.text in (old[-1], new[-1])
        for start, end in row.marks:
            assert 0 <= start < end <= len(row.text)
    for markup in (file.unified, file.split):
        numbers = re.findall(r' id="f1-(old|new)-(\d+)" data-file="1" data-side="(\w+)" data-line="(\d+)"', markup)
        ours = [("new", row.new) if row.new else ("old", row.old) for row in file.rows if row.kind != "place"]
        assert [(side, int(line)) for side, line, *again in numbers if again == [side, line]] == ours
        said = text_of(markup)
        assert all(plain(row.text) in said for row in file.rows)


@given(CONTENT, CONTENT)
def test_what_it_marks_is_what_differs(before: str, after: str) -> None:
    (file,) = read_diff(written("f", f"-{before}", f"+{after}"), every("f")).files
    _, old, new = file.rows
    if not old.marks and not new.marks:
        return
    rest = []
    for row in (old, new):
        edges = [0, *(edge for mark in row.marks for edge in mark), len(row.text)]
        rest.append("".join(row.text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)))
    assert rest[0] == rest[1]


@pytest.mark.usefixtures("runs_git")
def test_it_marks_the_words_that_changed_and_none_where_nearly_all_did(tmp_path: Path) -> None:
    file = compared(tmp_path, b"total = add(a, b)\nsame\nwholly other\n", b"total = sub(a, c)\nsame\n1, 2, 3, 4, 5\n")
    assert ">total = <mark>add</mark>(a, <mark>b</mark>)\n<" in file.unified
    assert ">total = <mark>sub</mark>(a, <mark>c</mark>)\n<" in file.unified
    assert file.unified.count("<mark>") == 4
    file = compared(tmp_path, b"one\r\n", b"one\n")
    assert ">one<mark>⟨U+000D⟩</mark>\n<" in file.unified


def test_it_bounds_the_search_for_changed_words() -> None:
    lines = [f"{sign}{word * 125}" for sign, word in (("-", "a b "), ("+", "b a ")) for _ in range(990)]
    (file,) = read_diff(written("f", *lines), every("f")).files
    assert len(file.rows) == MOST_OF_ONE
    words = " ".join(f"w{number}" for number in range(100))
    old, new = read_diff(written("f", f"-begin {words} end", f"+begin {words[::-1]} end"), every("f")).files[0].rows[1:]
    assert (len(old.marks), len(new.marks)) in {(0, 0), (1, 1)}


@pytest.mark.usefixtures("runs_git")
def test_it_shows_syntax_beside_changed_words_and_only_text_as_text(tmp_path: Path) -> None:
    before, after = b'def run():\n    """One\n    </code>"""\n', b'def run():\n    """Two\n    </code>"""\n'
    file = compared(tmp_path, before, after, "a.py")
    assert '<span class="k">def</span> <span class="f">run</span>():\n</code>' in file.unified
    assert '<span class="s">&quot;&quot;&quot;</span><mark><span class="s">One</span></mark>\n' in file.unified
    assert '<span class="s">    &lt;/code&gt;&quot;&quot;&quot;</span>' in file.unified, "of a string that goes on"
    text_of(file.unified)
    text_of(file.split)


CODE = st.lists(
    st.sampled_from(["<b>", "</span>", "'", '"', '"""', "<?php ", "{{", "{%", "```", "\n", "&", "/*", "\\", "x"])
)


@pytest.mark.usefixtures("starts_processes")
@settings(max_examples=examples(20), deadline=None)
@given(
    CODE.map("".join), st.sampled_from(["a.py", "a.js", "a.php", "a.md", "a.html", "a.vue", "a.sh", "a.yml", "a.rb"])
)
def test_it_shows_all_of_a_text_whatever_its_lexer_makes_of_it(text: str, name: str) -> None:
    lines = [f"+{line}" for line in text.split("\n")]
    (file,) = read_diff(written(name, *lines), every(name)).files
    said = re.sub(r"(?m)^\d+", "", text_of(file.unified))
    assert said == "@@ -1 +1 @@\n" + "".join(f"{plain(line[1:])}\n" for line in lines)


@pytest.mark.usefixtures("starts_processes")
def test_a_text_made_to_hold_a_lexer_costs_the_others_nothing() -> None:
    evil = [("python", "\n " * 20_000), ("typescript", "a." * 20_000), ("javascript", '\\"' * 20_000)]
    texts = [*evil[:1], ("python", "x = 1"), ("", "text"), ("no such lexer", "text")]
    assert highlighted(texts)[1] == [[(4, ""), (1, "n")]]
    assert len(highlighted(evil)) == len(evil)
    assert highlighted([("python", "x = 1" * 100_000)]) == [[]], "too long"
    assert highlighted([]) == []


def test_it_knows_a_lexer_by_the_files_name() -> None:
    assert [lexer_of(name) for name in ("a/b.py", "x/Makefile", ".bashrc", "a.d/plain", "é.TS", "", "/")] == [
        *("python", "make", "bash"),
        *("", "", "", ""),
    ]


@pytest.mark.usefixtures("starts_processes")
def test_it_names_submodules_links_and_pointers() -> None:
    module = written("m", "-Subproject commit 1", "+Subproject commit 2", note=f"{INDEX}@@ -1 +1 @@\n")
    link = written("l", "+/etc/passwd", note=f"new file mode 120000\nindex {NONE}..{NEW}\n@@ -0,0 +1 @@\n")
    pointer = ["version https://git-lfs.github.com/spec/v1", "oid sha256:1", "size 12"]
    stored = written("p.bin", *(f"+{line}" for line in pointer))
    posing = written("q.py", *(f"+{line}" for line in (*pointer, "import os")))
    records = [changed("m", old="160000", new="160000"), changed("l", "A", new="120000"), *every("p.bin", "q.py")]
    files = read_diff(module + link + stored + posing, records).files
    assert [file.kind for file in files] == ["submodule", "symbolic link", "Git LFS pointer", ""]


def test_a_file_of_another_type_has_both_of_its_sections_and_the_next_keeps_its_name() -> None:
    gone = written("a", "-x", note=f"deleted file mode 100644\nindex {OLD}..{NONE}\n@@ -1 +0,0 @@\n")
    link = written("a", "+/etc/passwd", note=f"new file mode 120000\nindex {NONE}..{NEW}\n@@ -0,0 +1 @@\n")
    first, second = read_diff(gone + link + written("b", "+y"), [changed("a", "T", new="120000"), changed("b")]).files
    assert (first.name, first.what, first.kind) == ("a", "another type", "symbolic link")
    assert lines_of(first) == [("removed", "x"), ("added", "/etc/passwd")]
    assert (second.name, lines_of(second)) == ("b", [("added", "y")])


@pytest.mark.usefixtures("runs_git")
def test_it_says_where_a_file_has_no_newline_at_its_end(tmp_path: Path) -> None:
    file = compared(tmp_path, b"one\ntwo", b"one\nthree")
    assert [row.unended for row in file.rows] == [False, False, True, True]
    assert text_of(file.unified).count("No newline at the end of the file") == 2


@pytest.mark.usefixtures("runs_git")
def test_side_by_side_every_line_has_its_number_once_and_both_sides_stand_in_one_block(tmp_path: Path) -> None:
    file = compared(tmp_path, b"a\nb\nc\nd\n", b"a\nB\nC\nC\nd\n")
    assert [re.findall(r'id="f1-(\w+-\d+)"', block) for block in re.split("<div>", file.split)[1:]] == [
        *(["new-1"], ["old-2", "old-3", "new-2", "new-3", "new-4"], ["new-5"]),
    ]
    assert file.split.count("data-copy") == 2 and "data-copy" not in file.unified


def test_the_view_is_the_one_of_the_address_or_else_the_last_one() -> None:
    asked = (("", "", "unified"), ("split", "", "split"), ("", "split", "split"), ("<b>", "x", "unified"))
    for query, cookie, view in asked:
        request = RequestFactory().get("/", {"view": query} if query else {})
        request.COOKIES[difference.COOKIE] = cookie
        assert difference.view_of(request) == view
        response = HttpResponse()
        difference.remember_view(request, response)
        assert (difference.COOKIE in response.cookies) == (query == "split")


@pytest.mark.usefixtures("runs_git")
def test_its_page_lists_the_files_and_shows_what_a_caller_puts_below_a_line(tmp_path: Path) -> None:
    file = compared(tmp_path, b"a\n", b"b\n")
    file.rows[2].below = mark_safe("<p>Why?</p>")
    changes = difference.Changes([file, read_diff(written("<i>", "+x"), every("<i>")).files[0]], ["more"])
    for view in difference.VIEWS:
        page = render_to_string("web/diff.html", {"changes": changes, "view": view, "address": "/here/"})
        assert page.count("<p>Why?</p></ins>") == 1 and "<i>" not in page
        assert '<a class="nx-mono" href="#file-1">' in page and "/here/?view=split#changes" in page
        assert "1 more, of which only the names are shown" in page
