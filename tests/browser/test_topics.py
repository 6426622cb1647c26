"""A topic as a person follows it, speaks in it and ends it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.hub import Hub
from tests.browser import scene
from tests.browser.conftest import Ids, watch
from tests.browser.scene import Does


@pytest.fixture
def do(hub: Hub) -> Does:
    """Call an operation of topics on the hub."""
    return scene.topics_over_rest(hub.url)


@pytest.fixture
def topic(do: Does) -> Ids:
    """A topic in which ann asks and bob answers."""
    for known in do("topic_list")["topics"]:
        do("topic_close", topic_id=known["topic_id"])  # of a closed name a new one is opened
    return scene.talk(do)


def speak(do: Does, topic: Ids, *texts: str) -> None:
    """Another peer says something."""
    name = f"zoe-{texts[0]}"[:64]
    do("topic_join", topic_id=topic["topic"], agent_name=name)
    for start in range(0, len(texts), 50):
        outbox = [{"content_markdown": text} for text in texts[start : start + 50]]
        do("sync", topic_id=topic["topic"], wait_seconds=0, auto_advance=False, outbox=outbox)


def test_it_shows_what_is_said_as_it_is_said_and_stays_at_the_end(page: Page, topic: Ids, do: Does) -> None:
    speak(do, topic, *(f"line {number}" for number in range(60)))
    watch(page, f"/admin/topics/{topic['topic']}/")
    expect(page.get_by_text("line 59", exact=True)).to_be_in_viewport()
    page.evaluate("window.stayed = true")
    speak(do, topic, "just now")
    expect(page.get_by_text("just now", exact=True)).to_be_in_viewport()
    expect(page.get_by_role("region", name="Peers")).to_contain_text("zoe-just now")
    shown = page.locator(".nx-said > li").evaluate_all("rows => rows.map((row) => Number(row.id.slice(2)))")
    assert shown == list(range(shown[0], 65)) and page.evaluate("window.stayed")


def test_it_leaves_one_where_one_reads(page: Page, topic: Ids, do: Does) -> None:
    speak(do, topic, *(f"line {number}" for number in range(40)))
    watch(page, f"/admin/topics/{topic['topic']}/")
    page.locator(".nx-stream").evaluate("pane => { pane.scrollTop = 0; }")
    speak(do, topic, "below")
    expect(page.get_by_text("below", exact=True)).to_be_attached()
    assert page.locator(".nx-stream").evaluate("pane => pane.scrollTop") == 0


def test_it_goes_to_the_message_that_a_link_names(page: Page, topic: Ids, do: Does) -> None:
    speak(do, topic, *(f"line {number}" for number in range(150)))
    page.goto(f"/admin/topics/{topic['topic']}/?at=30#m-30")
    expect(page.get_by_text("line 26", exact=True)).to_be_in_viewport()
    page.get_by_role("region", name="Peers").get_by_role("listitem").filter(has_text="ann").get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"\?at=\d#m-\d$"))
    page.get_by_role("link", name="#2 bob").first.click()
    expect(page.locator("#m-2")).to_be_in_viewport()
    expect(page).to_have_url(re.compile("#m-2$"))
    page.get_by_role("link", name="To the newest").click()
    expect(page.get_by_text("line 149", exact=True)).to_be_in_viewport()


def test_it_answers_without_losing_what_was_typed(page: Page, topic: Ids) -> None:
    page.goto(f"/admin/topics/{topic['topic']}/")
    field = page.get_by_label("Message (Markdown)")
    field.fill("Half a thought")
    page.get_by_role("link", name="Answer message 1").focus()
    page.keyboard.press("Enter")
    expect(field).to_be_focused()
    expect(field).to_have_value("Half a thought")
    expect(page.get_by_text("In answer to #1 ann")).to_be_visible()
    page.get_by_role("button", name="Not an answer").click()
    expect(page.locator("#answering")).to_be_hidden()
    page.get_by_role("link", name="Answer message 3").click()
    field.press_sequentially(", and the rest")
    page.get_by_role("button", name="Send").click()
    said = page.locator("#m-4")
    expect(said).to_be_in_viewport()
    expect(said).to_contain_text("Half a thought, and the rest")
    expect(said).to_contain_text("↳ to #3 ann")
    expect(page.get_by_role("region", name="Peers")).to_contain_text("operator")
