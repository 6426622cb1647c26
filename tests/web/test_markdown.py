"""Bodies and names that strangers wrote."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordination.routing import describe as target
from nexus.web import markdown
from nexus.web.markdown import MAX_HTML, MAX_RENDERED, rendered
from nexus.web.middleware import MarkdownBudget
from nexus.web.templatetags.nexus import name, plain, pretty
from tests.conftest import examples

HOSTILE = [
    "<script>alert(1)</script>",
    "<svg onload=alert(1)>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:alert(1))",
    "![x](https://evil.test/pixel.png)",
    '<a href="javascript:alert(1)">x</a>',
    '<div x-data="{a: alert(1)}" hx-get="/admin/">x</div>',
    "<iframe src=//evil.test></iframe>",
    "<style>*{display:none}</style>",
    '<https://evil.test/"onmouseover="alert(1)>',
]
TAG = re.compile(r"<([a-z][a-z0-9]*)\b([^>]*)>")


def dangerous(html: str) -> list[str]:
    """The tags of some HTML that could run, load or steer anything."""
    found = []
    for tag, attributes in TAG.findall(html):
        names = set(re.findall(r'([a-z:@-]+)="', attributes))
        bad = tag in ("script", "svg", "img", "iframe", "style", "form", "object")
        for scheme in re.findall(r'href="([^"]*)"', attributes):
            bad |= not re.match(r"(https?:|mailto:|[/#.?\w])", scheme) or "script:" in scheme.lower()[:20]
        if bad or names - {"href", "rel", "title", "start"}:
            found.append(tag)
    return found


def hostile_alone(test: Any) -> Any:
    for text in HOSTILE:
        test = example([text])(test)
    return test


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from([*HOSTILE, "**", "`", "\n\n", "> ", "| a |\n|---|\n", "<", ">", '"', "&"]), max_size=8))
@hostile_alone
def test_it_lets_nothing_through_that_runs_or_loads(parts: list[str]) -> None:
    assert dangerous(str(rendered("".join(parts)))) == []


def test_it_renders_what_people_use() -> None:
    html = str(rendered("# Title\n\n- **bold** `code`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[x](https://example.org)"))
    for part in ("<h1>Title</h1>", "<strong>bold</strong>", "<code>code</code>", "<td>1</td>", "https://example.org"):
        assert part in html
    assert 'rel="noopener noreferrer nofollow"' in html


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "> " * 5_000, "*a " * 20_000, "`" * 50_000, "a" * 1_000_000, "<" * 100_000]
)
def test_it_does_not_choke_on_a_text_made_to_be_slow(text: str) -> None:
    assert ("shown as written" in rendered(text)) is (len(text) > MAX_RENDERED)  # and it comes back at all


def test_it_makes_bidi_tricks_visible() -> None:
    assert plain("gpj.\u202eexe") == "gpj.⟨U+202E⟩exe"
    assert str(name("<b>\u2066x")) == '<bdi class="nx-name">&lt;b&gt;⟨U+2066⟩x</bdi>'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("", ""),
        ("text", "text"),
        ('{"a": 1}', '{\n  "a": 1\n}'),
        ("[" * 100_000, "[" * 100_000),
        ({"a": [1]}, '{\n  "a": [\n    1\n  ]\n}'),
        (7, "7"),
        ("\x00", "⟨U+0000⟩"),
    ],
    ids=["null", "nothing", "text", "JSON", "no JSON", "object", "number", "NUL"],
)
def test_it_shows_any_payload(value: object, text: str) -> None:
    assert pretty(value) == text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "everyone present"),
        ({"strategy": "direct", "agent_id": "a"}, "a"),
        ({"strategy": "capability", "capability": ["x", "y"]}, "capability x, y"),
        (
            {"strategy": "mixed", "rules": [{"strategy": "role", "role": "r"}, {"strategy": "broadcast"}]},
            "role r or everyone",
        ),
        ({"strategy": "mixed", "rules": []}, "nobody"),
        ({"strategy": "later"}, "unknown target"),
    ],
)
def test_it_says_whom_a_target_means(value: dict[str, object] | None, words: str) -> None:
    assert target(value) == words


HEAVY = {
    "wide tables": ("|" + "a|" * 300 + "\n|" + "-|" * 300 + "\n" + "|\n" * 40_000),
    "one-celled tables": "|a|\n|-|\n" + "|\n" * 40_000,
    "links": "[a](b)" * 20_000,
    "open brackets": "[" * 65_536,
    "lists": "- a\n" * 20_000,
}


@pytest.mark.parametrize("length", [MAX_RENDERED, 65_536])
@pytest.mark.parametrize("text", HEAVY.values(), ids=HEAVY)
def test_it_bounds_what_a_text_makes_of_a_page_and_says_so(text: str, length: int) -> None:
    html = rendered(text[:length])
    assert len(html) <= MAX_HTML
    assert length == MAX_RENDERED or "shown as written" in html


def test_it_renders_a_text_once_for_a_page_that_is_made_again() -> None:
    assert rendered("kept *once*") is rendered("kept *once*")


@pytest.mark.parametrize(
    "text",
    [
        "|" * 250 + "\n" + "|-" * 250 + "|\n" + "a\n" * 5_000,
        "> " + "|a" * 250 + "\n> " + "|-" * 250 + "\n" + "> |\n" * 2_000,
        "![" * 7_000,
        "[a](" * 4_000,
    ],
    ids=["a wide table", "a quoted one", "images in images", "links without an end"],
)
def test_it_does_not_parse_what_would_take_long(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(markdown._parser, "parse", parsed.append)
    assert len(text) <= MAX_RENDERED and "shown as written" in rendered(text)
    assert parsed == []


def test_the_texts_of_a_page_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "PAGE_SECONDS", 0)
    shown = []

    def page(request: HttpRequest) -> HttpResponse:
        shown.append([str(rendered(f"*text {number}*")) for number in range(50)])
        return HttpResponse()

    for _ in range(2):
        MarkdownBudget(page)(RequestFactory().get("/admin/"))
    for texts in shown:  # each page has its own
        assert ["<em>" in text for text in texts] == [True, *[False] * 49]
        assert all("shown as written" in text for text in texts[1:])
