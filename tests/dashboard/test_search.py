"""The search: everything, a few of each kind, what was found marked; and any text is a query."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from control.toolset import CONTROL
from core.operations.caller import Caller
from core.operations.runner import run
from dashboard.templatetags.nexus import highlight
from tests.dashboard.test_dashboard import Ids, do, queries


def page(browser: Client, query: str) -> str:
    answer = browser.get("/admin/find/", {"q": query})
    assert answer.status_code == 200
    return answer.content.decode()


def groups(text: str) -> list[str]:
    """The kinds of which something was found."""
    return re.findall(r'<section class="nx-card nx-flush" aria-label="([^"]*)"', text)


def test_it_finds_every_kind(team: Ids, browser: Client) -> None:
    assert groups(page(browser, "planner")) == ["Agents", "Handoffs", "Messages", "Events"]
    assert {"Workspaces", "Tasks", "Messages"} <= set(groups(page(browser, "parser")))
    assert groups(page(browser, "cache-key"))[0] == "Topics"
    assert "Said in topics" in groups(page(browser, "digest"))
    assert "Closed cycles" in groups(page(browser, "First steps"))
    assert "Files" in groups(page(browser, "docs/"))
    assert "Issues" in groups(page(browser, "fewer rules"))
    assert "Issues" in groups(page(browser, "which gramm"))
    assert "one pass" in page(browser, "fewer rules")  # beside them in the decision
    assert "Artifacts" in groups(page(browser, "decisions.md"))


def test_it_finds_what_agents_ask_people(team: Ids, browser: Client) -> None:
    asked = {"kind": "permission", "title": "Run make?", "detail": "It builds the <b>colophon</b>."}
    arguments = {"agent_id": "planner", "timeout_seconds": 0, **asked}
    question_id = run(CONTROL, Caller("test"), "ask_operator", arguments)["data"]["question_id"]
    text = page(browser, "colophon")
    assert groups(text)[0] == "Questions" and f"/admin/questions/{question_id}/" in text
    assert "question of planner, asked" in text and "<b>colophon" not in text


def test_it_finds_handoffs_by_their_titles(team: Ids, browser: Client) -> None:
    text = page(browser, "write gram")
    assert groups(text)[0] == "Handoffs"
    assert f'href="/admin/board/{team["claimed"]}/"' in text
    assert "<mark>write</mark> <mark>gram</mark>mar.py" in text


def test_it_finds_handoffs_by_what_they_hold_and_what_came_of_them(team: Ids, browser: Client) -> None:
    text = page(browser, "reader files")
    assert f'href="/admin/board/{team["open"]}/"' in text
    assert "task: write <mark>reader</mark>.py, <mark>files</mark>: <mark>reader</mark>.py" in text
    assert "<mark>12</mark> <mark>files</mark>" in page(browser, "12 files")


def test_it_tells_events_as_sentences(team: Ids, browser: Client) -> None:
    text = page(browser, "decisions")
    assert "the hub stored <mark>decisions</mark>.md" in text
    assert "&quot;" not in text[text.index('aria-label="Events"') :].split("</section>")[0]


def test_it_leads_to_more_of_a_kind(team: Ids, browser: Client) -> None:
    for number in range(8):
        do("message_create", project_root=team["root"], from_agent_id="planner", subject=f"Zebra {number}", body="x")
    text = page(browser, "zebra")
    assert text.count("<mark>Zebra</mark>") == 6
    more = re.search(r'href="([^"]*)" aria-label="More in Messages"', text)
    assert more
    assert browser.get(html.unescape(more[1])).content.decode().count('class="nx-letter"') == 8


def test_it_says_what_it_looks_in_and_that_nothing_was_found(db: None, browser: Client) -> None:
    assert "artifacts" in page(browser, "")
    assert "Nothing holds all of these words." in page(browser, "nothing-has-this")


def test_it_shows_hostile_finds_as_text(team: Ids, browser: Client) -> None:
    do(
        "message_create",
        project_root=team["root"],
        from_agent_id="planner",
        subject="<mark>evil</mark>\u202e",
        body="x",
    )
    text = page(browser, "evil")
    assert "&lt;mark&gt;<mark>evil</mark>&lt;/mark&gt;⟨U+202E⟩" in text


SEARCHES = [
    *("/admin/find/?q=", "/admin/search/?s=", "/admin/mail/?q=", "/admin/events/?q=", "/admin/agents/?q="),
    *("/admin/topics/?q=", "/admin/plan/history/?q=", "/admin/handoffs/handoff/?q=", "/admin/inbox/message/?q="),
    *("/admin/coordination/artifact/?q=", "/admin/coordination/workspace/?q=", "/admin/planning/task/?q="),
]


HOSTILE = ['"', "%25", "_", "' OR 1=1 --", "*", "AND NOT (", "%00", "a" * 70_000, "é ü " * 500]


@pytest.mark.parametrize("path", SEARCHES)
def test_it_takes_any_text_for_a_query(team: Ids, browser: Client, path: str) -> None:
    assert [browser.get(path + query).status_code for query in HOSTILE] == [200] * len(HOSTILE)


def test_it_asks_a_bounded_number_of_queries(team: Ids, browser: Client) -> None:
    assert queries(lambda: page(browser, "planner")) <= 23


@given(text=st.text(), words=st.text())
def test_it_marks_words_and_changes_nothing_else(text: str, words: str) -> None:
    marked = highlight(text, words)
    assert html.unescape(re.sub(r"</?mark>", "", marked)) == html.unescape(html.escape(text))
