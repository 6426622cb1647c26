"""The read archive and its cursors."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.conftest import Call
from tests.inbox.conftest import Clock, Post


@pytest.fixture
def read(call: Call, post: Post) -> Post:
    """Post a message to bob and acknowledge it at once."""

    def read(subject: str) -> str:
        message = post(subject)
        call("inbox_ack", agent_id="bob", message_ids=message)
        return message

    return read


def subjects(page: dict[str, Any]) -> list[str]:
    return [message["subject"] for message in page["messages"]]


def test_it_pages_from_the_newest_to_the_oldest(call: Call, read: Post, clock: Clock) -> None:
    for number in range(5):
        read(str(number))
        clock.shift(number % 2)  # some at the same instant

    pages, cursor, more = [], None, True
    while more:
        page = call("inbox_history", agent_id="bob", cursor=cursor, limit=2)
        pages.append(subjects(page))
        cursor, more = page["next_cursor"], page["has_more"]

    assert pages == [["4", "3"], ["2", "1"], ["0"]]
    assert cursor is None


def test_it_ends_a_page_that_is_full_of_text_and_goes_on_from_there(call: Call, read: Post, configure: Call) -> None:
    for subject in ("x" * 1000, "x" * 200, "y" * 200, "z" * 100):
        read(subject)
    configure(max_inline_bytes=14)  # 64 of these hold two messages whose bodies repeat their subjects

    pages = [call("inbox_history", agent_id="bob")]
    while pages[-1]["has_more"]:
        pages.append(call("inbox_history", agent_id="bob", cursor=pages[-1]["next_cursor"]))

    assert [[subject[0] for subject in subjects(page)] for page in pages] == [["z", "y"], ["x"], ["x"]]


def test_it_tells_of_no_next_page_when_the_last_one_is_full(call: Call, read: Post) -> None:
    read("0")
    read("1")

    page = call("inbox_history", agent_id="bob", limit=2)

    assert (page["has_more"], page["next_cursor"]) == (False, None)


def test_it_neither_repeats_nor_hides_anything_when_acks_come_between_pages(
    call: Call, read: Post, post: Post, clock: Clock
) -> None:
    late = post("sent first, read last")
    for number in range(4):
        read(str(number))
    first = call("inbox_history", agent_id="bob", limit=2)
    call("inbox_ack", agent_id="bob", message_ids=late)  # at the same instant as those on the page
    clock.shift(1)
    read("newest")

    second = call("inbox_history", agent_id="bob", limit=2, cursor=first["next_cursor"])

    assert subjects(first) + subjects(second) == ["3", "2", "1", "0"]


def crafted(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    ["0", "50", "1000", "", "?", "é", "a" * 10_000, crafted(), crafted(1, 2), crafted("2026-03-01T12:00:00", "d"),
     crafted("2026-03-01T12:00:00+00:00", 7), crafted("0001-01-01T00:00:00+14:00", "d"),
     crafted("2026-03-01T12:00:00+00:00", "\ud800"), base64.b64encode(b"[" * 5000).decode(), 50, True],
)  # fmt: skip
def test_it_refuses_a_cursor_it_did_not_make(refused: Call, cursor: Any) -> None:
    error = refused("inbox_history", agent_id="bob", cursor=cursor)

    assert error["code"] == "VALIDATION_ERROR"
    assert "cursor" in error["message"]


def test_it_tells_what_to_pass_instead_of_a_number(refused: Call) -> None:
    assert "next_cursor" in refused("inbox_history", agent_id="bob", cursor="50")["message"]
