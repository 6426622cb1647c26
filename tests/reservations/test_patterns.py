"""Patterns: what they match is what git says, and two overlap where some path is matched by both."""

from __future__ import annotations

import fnmatch
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nexus.reservations import patterns
from nexus.reservations.patterns import (
    ending,
    extension,
    literal,
    matches,
    normalized,
    overlap,
    prefix_key,
    prefix_keys,
)
from tests.conftest import examples

NAMES = ["".join(letters) for length in (1, 2, 3) for letters in product("ab", repeat=length)]
PATHS = [*NAMES, *("/".join(names) for depth in (2, 3) for names in product(NAMES[:5], repeat=depth))]

pieces = st.sampled_from(["a", "b", "*", "?", r"\a"])
parts = st.one_of(st.lists(pieces, min_size=1, max_size=4).map("".join), st.just("**"))
globs = st.builds(
    lambda start, names, end: start + "/".join(names) + end,
    st.sampled_from(["", "/"]),
    st.lists(parts, min_size=1, max_size=4),
    st.sampled_from(["", "", "/"]),
)


@pytest.fixture(scope="module")
def repository(runs_git: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


def ignored(repository: Path, pattern: str) -> set[str]:
    """The paths that git says a line of .gitignore matches."""
    (repository / ".gitignore").write_text(pattern + "\n")
    asked = ["git", "-c", "core.ignorecase=false", "-C", str(repository), "check-ignore", "--no-index", "--stdin"]
    done = subprocess.run(asked, input="\n".join(PATHS), capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.split())


@settings(max_examples=examples(40))
@given(pattern=globs)
@example(pattern="**/a/**")
@example(pattern="a/**/")
@example(pattern="**")
@example(pattern="/**/b")
@example(pattern="a**/**")
@example(pattern="a**/b")
@example(pattern="/b/a**")
@example(pattern="a**/**/")
@example(pattern="a***/**/***/b*/")
@example(pattern="a/***/b")
@example(pattern="b**a/a")
@example(pattern=r"\a**/b")
@example(pattern="?**/b")
def test_it_matches_what_git_ignores(repository: Path, pattern: str) -> None:
    try:
        kept = normalized(pattern)
    except ValueError:
        assume(False)
    assert {path for path in PATHS if matches(kept, path)} == ignored(repository, kept)
    if "/" in pattern.rstrip("/") or set(pattern) & set("*?"):  # a plain name is the root's, and any for git
        assert ignored(repository, kept) == ignored(repository, pattern)
    assert normalized(kept) == kept


small_parts = st.one_of(st.lists(pieces.filter(lambda piece: piece[0] != "\\"), min_size=1, max_size=3).map("".join))
small = st.builds(
    lambda start, names, end: start + "/".join(names) + end,
    st.sampled_from(["", "/"]),
    st.lists(st.one_of(small_parts, st.sampled_from(["**", "?", "?*", "*?"])), min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)
SPELLED = ["".join(letters) for length in range(1, 7) for letters in product("abc", repeat=length)]
LONGEST = 8  # names of a path


@cache
def spelled(part: str) -> frozenset[str]:
    """The names that a part matches, of all that are long enough to tell any two of the parts above apart."""
    fits = re.compile(fnmatch.translate(part)).match
    return frozenset(name for name in SPELLED if fits(name))


def spread(pattern: str) -> Iterator[tuple[str, ...]]:
    """The parts of every path that a pattern matches, with `**` spread out: as gitignore(5) tells it."""
    beginning, stars, rest = re.fullmatch(r"/?([ab/]*)(\*\*+/)?(.*)", pattern).groups()  # type: ignore[union-attr]
    if stars and beginning and not beginning.endswith("/") and rest:
        if not re.fullmatch(r"[*/]*", rest):
            yield from spread(f"/{beginning}{rest}")
        pattern = f"/{beginning}*/**/{rest}" if rest.strip("*/") else f"/{beginning}*" + "/" * rest.endswith("/")
    names = [re.sub(r"^\*\*+$", "**", name) for name in pattern.strip("/").split("/")]
    choices: list[list[tuple[str, ...]]] = [] if "/" in pattern.rstrip("/") else [_any(0)]
    choices += [_any(0) if name == "**" else [(name,)] for name in names[:-1]]
    choices.append(_any(1) if names[-1] == "**" else [(names[-1],)])
    choices.append(_any(1) if pattern.endswith("/") else _any(0))
    for chosen in product(*choices):
        parts = tuple(part for some in chosen for part in some)
        if len(parts) <= LONGEST:
            yield parts


def _any(least: int) -> list[tuple[str, ...]]:
    return [("*",) * count for count in range(least, 5)]


@settings(max_examples=examples(150))
@given(one=small, other=small)
@example(one="a/*/b", other="**/b/a/*")
@example(one="/*a", other="/b*")
@example(one="/a**b", other="/a/b")
@example(one="/a/", other="/a")
@example(one="/a/**", other="/a/")
@example(one="/a*b", other="/*ab*")
@example(one="/a", other="/?b")
@example(one="**/a/b", other="/b/**/a")
def test_it_finds_an_overlap_exactly_where_a_path_is_matched_by_both(one: str, other: str) -> None:
    kept, others = normalized(one), normalized(other)
    first, second = set(spread(kept)), set(spread(others))
    expected = any(
        all(spelled(part) & spelled(facing) for part, facing in zip(parts, facings, strict=True))
        for parts in first
        for facings in second
        if len(parts) == len(facings)
    )
    assert overlap(kept, others) is expected
    assert overlap(others, kept) is expected
    if expected:
        assert {extension(kept), extension(others), ""} in ({extension(kept), ""}, {extension(others), ""})
        assert prefix_key(kept).startswith(prefix_key(others)) or prefix_key(others).startswith(prefix_key(kept))


def both(one: str, other: str) -> bool:
    return overlap(normalized(one), normalized(other))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("src", "src/app.py", True),
        ("src/", "src/deep/app.py", True),
        ("src/", "lib/src/app.py", False),  # a plain name is the root's
        ("src/", "docs/", False),
        ("**/src/", "lib/src/app.py", True),
        ("src*/", "lib/src/app.py", True),
        ("*.py", "src/deep/app.py", True),
        ("*.py", "*.md", False),  # files, and no directories of such a name
        ("*.py", "src/app.ts", False),
        ("*.py?", "x.pyc", True),
        ("*.py/", "a.py/b.md", True),
        ("v1.2", "v1.2/notes", True),  # no letter, no extension
        (".github", ".github/workflows/ci.yml", True),
        ("src/**/test_*.py", "src/test_a.py", True),
        ("src/*/a.py", "src/a.py", False),
        ("docs/*", "docs/a/b.md", True),
        ("/a?c", "/abc", True),
        ("/a?c", "/a/c", False),
        ("[ab]", "/a", False),  # brackets are ordinary characters
        (r"/\[id\]", "/[id]", True),
        ("app/[id]", "app/[id]/page.tsx", True),
        ("README.md", "docs/README.md", False),
        ("**/README.md", "docs/README.md", True),
        ("/Makefile", "/makefile", False),
        ("café", "cafe\u0301", True),
        ("**", "anything/at/all", True),
        ("?", "é", True),
    ],
)
def test_it_compares_patterns_as_people_mean_them(one: str, other: str, expected: bool) -> None:
    assert both(one, other) is expected
    assert both(other, one) is expected


@given(name=st.text(st.characters(exclude_characters="/", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20))
def test_it_takes_any_name_literally_that_was_escaped(name: str) -> None:
    assume(name.strip() and not name.endswith(" ") and name not in (".", "..") and not name.startswith("!"))
    kept = normalized(f"./{literal(name)}")
    assert matches(kept, name)
    assert not matches(kept, f"{name}x")


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("*.py", "py"), ("src/a.tar.gz", "gz"), ("src/", ""), ("a.py/", ""), ("*.py?", ""), ("*.*", ""), (".env", ""),
     ("v1.2", ""), ("**", ""), ("a/**", ""), (r"a.p\y", "")],
)  # fmt: skip
def test_it_tells_the_extension_that_all_files_of_a_pattern_have(pattern: str, told: str) -> None:
    assert extension(normalized(pattern)) == told


def words_of(*pieces: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(pieces), min_size=1, max_size=6).map("".join)


NAMED = words_of(*"a.Keé")
MEANT = {
    "*": NAMED,
    "?": st.sampled_from("aK"),
    "K": st.sampled_from("K\u212a"),
    "é": st.sampled_from(["é", "e\u0301"]),
}


@st.composite
def found(draw: st.DrawFn) -> tuple[str, str]:
    """A pattern, and a path that it may well match: each of its letters as it may be written."""
    pattern = draw(words_of(*"a.Keé/*?"))
    path = "".join(draw(MEANT[letter]) if letter in MEANT else letter for letter in pattern).strip("/")
    return pattern, f"{path}/{draw(NAMED)}" if pattern.endswith("/") or draw(st.booleans()) else path


@given(found())
@example(("*.K", "a.\u212a"))  # one letter, composed
@example(("*.a", "K/e.a"))
def test_a_file_is_asked_for_where_its_patterns_are_kept(found: tuple[str, str]) -> None:
    pattern, path = found
    try:
        kept = normalized(pattern)
    except ValueError:
        assume(False)
    assume(all(name.strip(".") for name in path.split("/")) and matches(kept, path))
    assert prefix_key(kept) in prefix_keys(path)
    assert extension(kept) in ("", ending(path))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("./src//app.py", "src/app.py"),
        ("Makefile", "/Makefile"),
        ("src", "/src"),
        ("*.py", "*.py"),
        ("/src/", "/src/"),
        (".", "/**"),
        ("/", "/**"),
        ("src/./app.py", "src/app.py"),
        ("notes.md  ", "/notes.md"),
        ("notes\\ ", "/notes\\ "),
    ],
)
def test_it_keeps_one_form_of_a_pattern(text: str, kept: str) -> None:
    assert normalized(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        *("", "   ", "a/../b", "..", "!a", "a\\", "a\nb"),
        "x" * 1025,
        "*" + "x" * 100,
        "a" * 60 + "**/" + "b" * 60 + "?",
    ],
)
def test_it_refuses_what_can_match_no_file_below_the_root(text: str) -> None:
    with pytest.raises(ValueError, match=r"; |write|shorten"):
        normalized(text)


@given(text=st.text(max_size=60))
def test_it_reads_any_text_or_says_what_is_wrong_with_it(text: str) -> None:
    try:
        kept = normalized(text)
    except ValueError as why:
        assert str(why)
    else:
        assert normalized(kept) == kept
        assert overlap(kept, kept)
        assert len(prefix_key(kept)) <= patterns.PLACE_LENGTH


def test_it_decides_where_trying_each_way_would_not_end() -> None:
    for one, other in [
        ("./" + "*a" * 49 + "*b", "./" + "*a" * 49 + "*c"),
        ("a/**/" * 80 + "c.d", "a/" * 120 + "c.e"),
        ("**/" + "*a/**/" * 145 + "*b.c?", "**/" + "*a/**/" * 145 + "*d.e?"),
        ("**/" + "?*/**/" * 145 + "*b.c?", "**/" + "*/" * 500 + "*d.e?"),
        ("/".join(f"*{chr(0x4E00 + at)}?" for at in range(30)) + "/*b.c?", "**/" + "??*/" * 30 + "*d.e?"),
    ]:
        assert not both(one, other)
