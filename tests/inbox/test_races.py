"""What happens when one inbox is pulled and settled from many sides at the same time."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest

from coordination.models import Event
from coordination.toolset import run
from inbox import selectors
from inbox.models import Delivery
from tests.conftest import LOCAL, Call, at_once
from tests.inbox.conftest import Post

pytestmark = pytest.mark.usefixtures("committed")

ROUNDS = 5  # a race that is lost only sometimes is lost in one of these


def answer(name: str, /, **arguments: Any) -> dict[str, Any]:
    envelope = run(LOCAL, name, arguments)
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


def test_it_never_hands_one_delivery_to_two_leases(post: Post) -> None:
    for _ in range(ROUNDS):
        posted = {post(str(number)) for number in range(12)}

        pulls = at_once([partial(answer, "inbox_pull", agent_id="bob", limit=4)] * 6)

        handed = Counter(message["message_id"] for pull in pulls for message in pull["messages"])
        assert handed == Counter(posted)
        assert set(Delivery.objects.values_list("attempts", flat=True)) == {1}


def test_it_hands_out_what_is_left_when_another_pull_was_quicker(
    post: Post, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (post(str(number)) for number in range(3))
    look = selectors.claimable
    quicker: list[str | None] = []

    def look_and_be_late(*given: Any) -> list[Delivery]:
        found = look(*given)
        if not quicker:
            quicker.append(None)
            quicker[:] = [message["message_id"] for message in call("inbox_pull", agent_id="bob", limit=1)["messages"]]
        return found

    monkeypatch.setattr(selectors, "claimable", look_and_be_late)
    pulled = call("inbox_pull", agent_id="bob", limit=2)["messages"]

    assert quicker == [first]
    assert [message["message_id"] for message in pulled] == [second, third]
    assert set(Delivery.objects.values_list("attempts", flat=True)) == {1}


def test_it_counts_each_acknowledgement_once(post: Post, call: Call) -> None:
    ids = [post(str(number)) for number in range(6)]
    call("inbox_pull", agent_id="bob")

    acks = at_once([partial(answer, "inbox_ack", agent_id="bob", message_ids=ids)] * 6)

    assert sorted(ack["acknowledged"] for ack in acks) == [0, 0, 0, 0, 0, 6]


def test_it_delivers_everything_that_was_sent_at_once_and_numbers_it_without_a_gap(
    post: Post, call: Call, project: str
) -> None:
    before = Event.objects.count()
    letter = partial(
        answer,
        "message_create",
        project_root=project,
        from_agent_id="ana",
        body="b",
        target={"strategy": "direct", "agent_id": "bob"},
    )

    sent = at_once([partial(letter, subject=str(number)) for number in range(12)])

    assert len({message["message_id"] for message in sent}) == 12
    assert call("inbox_count", agent_id="bob")["unread"] == 12
    numbers = sorted(message["event_id"] for message in sent)
    assert numbers == list(range(numbers[0], numbers[0] + 12))
    assert Event.objects.count() == before + 12
