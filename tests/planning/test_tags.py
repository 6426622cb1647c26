"""Tags are found where a user writes them, and nowhere else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.planning.catalog import bundled
from nexus.planning.catalog.tags import TaggedText, find_tags

TAGS = bundled.tags()
MARKS = ["[plan]", "[plan:auto]", "[plan:x]", "[m:gc]", "[m]", "[d]", "[rule:a-b]", "[rule:", "[", "]", ":", "("]
PIECES = st.sampled_from([*MARKS, "`", "```", "~~~", " ", "\n", "\r\n", "x", "é", "\u2028", "word"])
TEXTS = st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60)


def found(text: str) -> list[tuple[str, str | None, str]]:
    return [(one.tag, one.variant, one.rest) for one in find_tags(text, TAGS)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("no tag", []),
        ("[plan] the cache", [("plan", None, "the cache")]),
        ("[plan]the cache", [("plan", None, "the cache")]),
        ("please [run]", [("run", None, "")]),
        ("[plan:auto] it", [("plan", "auto", "it")]),
        ("[plan:slow] it", []),
        ("[rule] a", [("rule", None, "a")]),
        ("[rule:tests] a", [("rule", "tests", "a")]),
        ("[rule:ünïcode] a", [("rule", "ünïcode", "a")]),
        ("[rule:] a", []),
        ("[rule:a b] c", []),
        ("[m] one [m:gc]\n[d] two\nlines", [("m", None, "one"), ("m-gc", None, ""), ("d", None, "two\nlines")]),
        ("[m:other] x", []),
        ("[Plan] x", []),
        ("[unknown] x", []),
        ("matrix[d] and f(x)[m]", []),
        ("[d](https://example.org)", []),
        ("`[d]` and ` [m] `", []),
        ("```\n[d] in code\n```\n[m] after", [("m", None, "after")]),
        ("~~~~ text\n```\n[d]\n~~~\n[d]\n~~~~\n[m] after", [("m", None, "after")]),
        ("```never closed\n[d] x", []),
        ("```[d]``` no fence\n[m] x", [("m", None, "x")]),
        ("[plan] see\n```\n[d]\n```\nend", [("plan", None, "see\n```\n[d]\n```\nend")]),
    ],
)
def test_it_finds_the_tags_of_a_text(text: str, expected: list[tuple[str, str | None, str]]) -> None:
    assert found(text) == expected


@given(TEXTS)
def test_it_never_fails_and_every_rest_stands_in_the_text(text: str) -> None:
    place = 0
    for one in find_tags(text, TAGS):
        assert one.rest == one.rest.strip()
        place = text.index(one.rest, place) + len(one.rest)


@given(TEXTS, st.sampled_from(TAGS), st.text(alphabet="abc \n", max_size=20))
def test_it_finds_a_tag_before_any_text_without_one(before: str, tag: bundled.BundledTag, after: str) -> None:
    if not {"`", "~"} & set(before):
        assert find_tags(f"{before}\n{tag.trigger} {after}", TAGS)[-1] == TaggedText(tag.id, None, after.strip())


@given(st.text(max_size=40))
def test_it_finds_nothing_within_a_fence(text: str) -> None:
    inside = text.replace("`", "")
    assert find_tags(f"```\n{inside}\n```", TAGS) == []


@pytest.mark.parametrize("piece", ["[", "[plan:", "`", "```\n", "~~~\n", "[rule:" + "x" * 70, " [d]", "[d][", "````` "])
def test_it_takes_no_more_than_its_share_of_time(piece: str) -> None:
    """A hundred thousand characters end: what is not linear would not, within the time that a test has."""
    assert len(find_tags(piece * (100_000 // len(piece)), TAGS)) <= 100_000
