"""A diff as its page shows it: whatever stands in it."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as st

from nexus.web.difference import LONGEST, MOST_FILES, MOST_LINES, MOST_OF_ONE, Changed, read
from nexus.web.templatetags.nexus import plain

CONTENT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=30) | st.sampled_from(
    ["diff --git a/x b/x", "-- a/x", "++ b/x", "@@ -1 +1 @@", "Binary files a and b differ", "new file mode 1", "<b>"]
)
FILES = st.lists(st.lists(st.tuples(st.sampled_from(" +-"), CONTENT), min_size=1, max_size=8), max_size=4)
LINE = re.compile(r'<(ins|del|div) id="f1-(old|new)-(\d+)".*?<code>(.*?)\n</code>', re.DOTALL)
TAGS = re.compile(r"<[^>]*>")


def written(name: str, *lines: str, note: str = "index 1..2 100644\n--- a\n+++ b\n@@ -1 +1 @@\n") -> str:
    return f"diff --git a/{name} b/{name}\n{note}" + "".join(f"{line}\n" for line in lines)


def lines_of(file: Changed) -> list[tuple[str, str]]:
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
    changes = read(diff, names)
    assert [file.name for file in changes.files] == names
    kinds = {"+": "added", "-": "removed", " ": "same"}
    for file, lines in zip(changes.files, files, strict=True):
        assert lines_of(file) == [(kinds[sign], text) for sign, text in lines]
        assert (file.added, file.removed) == tuple(sum(sign == one for sign, _ in lines) for one in "+-")
        assert not file.what and not file.binary
        shown = "".join(f"{plain(text)}\n" for _, text in lines)
        assert re.sub(r"(?m)^\d+", "", text_of(file.unified)) == "@@ -1 +1 @@\n" + re.sub(r"(?m)^\d+", "", shown)


@given(st.text(max_size=300), st.lists(st.text(max_size=10), max_size=3))
def test_it_reads_any_text(diff: str, names: list[str]) -> None:
    for changes in (read(diff, names), read(f"diff --git {diff}", names), read(f"diff --git \n@@{diff}", names)):
        for file in changes.files:
            for markup in (file.unified, file.split):
                assert "\u202e" not in text_of(markup)


def test_it_takes_names_from_the_list_and_never_from_a_header() -> None:
    diff = written('"a\\nb', "+x") + written("b b/c d", "+x")
    assert [file.name for file in read(diff, ["a\nb", "b b/c d"]).files] == ["a\nb", "b b/c d"]


def test_it_tells_new_deleted_binary_empty_and_other_modes() -> None:
    diff = (
        written("a", note="new file mode 100644\nindex 0..1\nBinary files /dev/null and b/a differ\n")
        + written("b", note="deleted file mode 100644\nindex 1..0\n")
        + written("c", note="old mode 100644\nnew mode 100755\n")
    )
    new, deleted, mode = read(diff, ["a", "b", "c"]).files
    assert (new.what, new.binary, new.rows) == ("new", True, [])
    assert (deleted.what, deleted.binary, deleted.rows) == ("deleted", False, [])
    assert (mode.notes, mode.rows) == (["old mode 100644", "new mode 100755"], [])


def test_it_shows_so_many_files_lines_and_characters_and_counts_the_rest() -> None:
    long = written("long", *["+x"] * (MOST_OF_ONE + 10))
    after = written("after", "+z")
    changes = read(long + after + long + after, ["long", "after", "long", "after", *(f"cut{n}" for n in range(3))])
    first, second, third, last = changes.files
    assert (len(first.rows), first.hidden, first.added) == (MOST_OF_ONE, 11, MOST_OF_ONE + 10)
    assert (len(second.rows), second.hidden, second.added) == (2, 0, 1)
    assert (len(third.rows), third.hidden) == (MOST_LINES - MOST_OF_ONE - 2, 13)
    assert (last.rows, last.hidden, last.added) == ([], 2, 1)
    assert [file.opened for file in changes.files] == [True, False, False, False]
    assert changes.unshown == ["cut0", "cut1", "cut2"]
    (wide,) = read(written("wide", "+" + "y" * (LONGEST + 1)), ["wide"]).files
    assert text_of(wide.unified).endswith("y… (1 characters more)\n")
    many = [f"f{number}" for number in range(MOST_FILES + 5)]
    changes = read("".join(written(name, "+x") for name in many), many)
    assert len(changes.files) == MOST_FILES and len(changes.unshown) == 5
