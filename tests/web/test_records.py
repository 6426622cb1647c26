"""The lists of records: sentences, targets in words, what agents attached laid out; and nobody changes them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from coordination.models import Artifact, Event
from nexus.web.templatetags.nexus import MOST_VALUES, readable
from tests.pages import Ids
from tests.store import plans

MARKUP = re.compile(r"</?(?:dl|dt|dd|ul|li|bdi|span)(?: class=\"[\w -]+\")?>|</?div(?: x-ignore hx-disable)?>")


def record(browser: Client, path: str) -> str:
    """A page of records, without the scripts and styles around it."""
    answer = browser.get(f"/admin/{path}")
    assert answer.status_code == 200
    text = answer.content.decode()
    return text[text.index("</nav>") if "</nav>" in text else 0 :]


@pytest.mark.parametrize("path", ["handoffs/handoff/", "inbox/message/", "coordination/event/"])
def test_it_shows_no_json_in_a_list(played_team: Ids, browser: Client, path: str) -> None:
    assert "&quot;strategy&quot;" not in record(browser, path)


def test_it_shows_work_by_its_title_and_targets_in_words(played_team: Ids, browser: Client) -> None:
    text = record(browser, "handoffs/handoff/?q=port+it")
    assert "capability rust" in text
    assert "write grammar.py" not in text  # the search is for titles, too
    assert "role translator" in record(browser, "inbox/message/")


def test_it_tells_what_happened_in_the_list_of_events(played_team: Ids, browser: Client) -> None:
    text = record(browser, "coordination/event/")
    assert f'href="/admin/handoffs/handoff/{played_team["open"]}/change/"' in text
    assert "whoever has" in text


@pytest.mark.parametrize("path", ["handoffs/handoff", "inbox/message", "inbox/delivery", "coordination/event"])
def test_it_puts_no_link_into_a_link(played_team: Ids, browser: Client, path: str) -> None:
    assert not re.search("<a [^>]*>((?!</a>).)*<a ", record(browser, f"{path}/"))


def test_it_lays_out_what_an_event_holds(played_team: Ids, browser: Client) -> None:
    event = Event.objects.get(type="message.created", payload__message_id=played_team["reply"])
    text = record(browser, f"coordination/event/{event.pk}/change/")
    assert "<dt>subject</dt>" in text
    assert "&quot;" not in text


def test_it_lays_out_metadata(played_team: Ids, browser: Client) -> None:
    Artifact.objects.filter(pk=played_team["artifact"]).update(metadata={"lines": [12, 30], "<b>": True})
    text = record(browser, f"coordination/artifact/{played_team['artifact']}/change/")
    assert "<dt>lines</dt>" in text
    assert "<dt>&lt;b&gt;</dt>" in text


@pytest.mark.parametrize("path", ["coordination/session", "coordination/event", "inbox/message", "handoffs/handoff"])
def test_it_narrows_records_down_to_a_workspace(played_team: Ids, browser: Client, path: str) -> None:
    there = record(browser, f"{path}/?workspace={played_team['workspace']}")
    elsewhere = record(browser, f"{path}/?workspace=nowhere")
    assert "field-workspace_link" in there
    assert "field-workspace_link" not in elsewhere


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


@given(value=JSON)
def test_it_lays_out_any_value_as_text_and_tags_of_ours(value: Any) -> None:
    for given_as in (value, json.dumps(value)):
        assert "<" not in MARKUP.sub("", readable(given_as))


def test_it_lays_out_so_much_and_says_that_there_is_more() -> None:
    wide, deep = list(range(10 * MOST_VALUES)), json.dumps({"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}})
    for value in (wide, deep):
        text = readable(value)
        assert "… and more" in text
        assert text.count("<li>") <= MOST_VALUES + 1
    assert "<bdi" in readable("[" * 100_000)


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_the_handoffs_of_a_workspace_come_in_the_order_of_an_index(played_team: Ids, browser: Client) -> None:
    looked = plans(lambda: browser.get(f"/admin/handoffs/handoff/?workspace={played_team['workspace']}"))
    assert any("handoffs_by_workspace (workspace_id=?)" in plan and "B-TREE" not in plan for plan in looked), looked
