"""A diff as its page shows it: whatever stands in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nexus.web.difference import LONGEST, MOST_FILES, MOST_LINES, MOST_OF_ONE, read
from nexus.web.templatetags.nexus import difference

CONTENT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=30) | st.sampled_from(
    ["diff --git a/x b/x", "-- a/x", "++ b/x", "@@ -1 +1 @@", "Binary files a and b differ", "new file mode 1"]
)
FILES = st.lists(st.lists(st.tuples(st.sampled_from(" +-"), CONTENT), min_size=1, max_size=8), max_size=4)


def written(name: str, *lines: str, note: str = "index 1..2 100644\n--- a\n+++ b\n@@ -1 +1 @@\n") -> str:
    return f"diff --git a/{name} b/{name}\n{note}" + "".join(f"{line}\n" for line in lines)


@given(FILES)
def test_it_gives_every_line_to_its_file(files: list[list[tuple[str, str]]]) -> None:
    names = [f"f{number}" for number in range(len(files))]
    diff = "".join(
        written(name, *(sign + text for sign, text in lines)) for name, lines in zip(names, files, strict=True)
    )
    changes = read(diff, names)
    assert [file.name for file in changes.files] == names
    for file, lines in zip(changes.files, files, strict=True):
        assert [text for _, text in file.lines[1:]] == [sign + text for sign, text in lines]
        assert (file.added, file.removed) == tuple(sum(sign == one for sign, _ in lines) for one in "+-")
        assert not file.what and not file.binary


@given(st.text(max_size=300), st.lists(st.text(max_size=10), max_size=3))
def test_it_reads_any_text(diff: str, names: list[str]) -> None:
    changes = read(diff, names)
    for file in changes.files:
        assert "\u202e" not in difference(file.lines)
    read(f"diff --git {diff}", names)


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
    assert (new.what, new.binary, new.lines) == ("new", True, [])
    assert (deleted.what, deleted.binary, deleted.lines) == ("deleted", False, [])
    assert mode.lines == [("place", "old mode 100644"), ("place", "new mode 100755")]


def test_it_shows_so_many_files_lines_and_characters_and_counts_the_rest() -> None:
    long = written("long", *["+x"] * (MOST_OF_ONE + 10))
    after = written("after", "+z")
    changes = read(long + after + long + after, ["long", "after", "long", "after", *(f"cut{n}" for n in range(3))])
    first, second, third, last = changes.files
    assert (len(first.lines), first.hidden, first.added) == (MOST_OF_ONE, 11, MOST_OF_ONE + 10)
    assert (len(second.lines), second.hidden, second.added) == (2, 0, 1)
    assert (len(third.lines), third.hidden) == (MOST_LINES - MOST_OF_ONE - 2, 13)
    assert (last.lines, last.hidden, last.added) == ([], 2, 1)
    assert [file.opened for file in changes.files] == [True, False, False, False]
    assert changes.unshown == ["cut0", "cut1", "cut2"]
    (wide,) = read(written("wide", "+" + "y" * LONGEST), ["wide"]).files
    assert wide.lines[1][1].endswith("y… (1 characters more)")
    many = [f"f{number}" for number in range(MOST_FILES + 5)]
    changes = read("".join(written(name, "+x") for name in many), many)
    assert len(changes.files) == MOST_FILES and len(changes.unshown) == 5
