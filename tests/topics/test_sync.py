"""Sending and receiving: the outbox, the cursor, presence."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import time_machine

from coordination.models import Event
from nexus.topics.models import Peer, Topic, TopicMessage
from tests.conftest import at_once
from tests.topics.conftest import Client, texts


def test_it_sends_and_receives_in_one_call(ann: Client, bob: Client, topic: str) -> None:
    bob.say(topic, "hello")
    synced = ann.look(topic, outbox=[{"content_markdown": "hi", "metadata": {"n": [1]}, "client_message_id": "k"}])
    assert set(synced) == {
        *("topic_id", "agent_name", "status", "cursor", "sent", "received", "received_count", "has_more")
    }
    assert (synced["topic_id"], synced["agent_name"], synced["status"]) == (topic, "ann", "ready")
    assert (synced["cursor"]["last_seq"], synced["received_count"], synced["has_more"]) == (1, 1, False)
    (sent,), (received,) = synced["sent"], synced["received"]
    message = sent["message"]
    assert sent["duplicate"] is False and message == {
        "message_id": message["message_id"],
        "topic_id": topic,
        "seq": 2,
        "sender": "ann",
        "message_type": "message",
        "reply_to": None,
        "content_markdown": "hi",
        "metadata": {"n": [1]},
        "client_message_id": "k",
        "created_at": message["created_at"],
    }
    assert set(received) == set(message) and received["sender"] == "bob"
    assert isinstance(message["created_at"], float)


def test_it_returns_at_once_where_nothing_is_to_be_waited_for(ann: Client, topic: str) -> None:
    assert ann.look(topic)["status"] == "empty"
    assert ann.look(topic, outbox=[{"content_markdown": "x"}])["status"] == "empty"


def test_it_hands_out_the_oldest_first_until_there_is_no_more(ann: Client, bob: Client, topic: str) -> None:
    ann.say(topic, *map(str, range(45)))
    pages = [bob.look(topic) for _ in range(4)]
    assert [len(page["received"]) for page in pages] == [20, 20, 5, 0]
    assert [page["has_more"] for page in pages] == [True, True, False, False]
    assert [page["cursor"]["last_seq"] for page in pages] == [20, 40, 45, 45]
    assert [text for page in pages for text in texts(page)] == list(map(str, range(45)))


def test_ones_own_messages_come_only_where_wanted_and_else_leave_the_cursor(
    ann: Client, bob: Client, topic: str
) -> None:
    ann.say(topic, "mine", "mine too")
    assert ann.look(topic)["cursor"]["last_seq"] == 0
    bob.say(topic, "his")
    assert texts(ann.look(topic)) == ["his"]
    assert Peer.objects.get(agent_name="ann").last_seq == 3
    ann.call("cursor_reset", topic_id=topic)
    everything = ann.look(topic, include_self=True)
    assert texts(everything) == ["mine", "mine too", "his"] and everything["cursor"]["last_seq"] == 3
    ann.call("cursor_reset", topic_id=topic)
    assert ann.look(topic, include_self=True, max_items=2)["cursor"]["last_seq"] == 2


def test_what_was_its_own_is_passed_over_once_and_still_there_to_be_replayed(
    ann: Client, bob: Client, topic: str
) -> None:
    ann.say(topic, "one", "two")
    assert ann.look(topic)["received_count"] == 0
    assert Peer.objects.get(agent_name="ann").floor == 2, "nothing of it is read again"
    assert texts(ann.look(topic, include_self=True, auto_advance=False)) == ["one", "two"]
    bob.say(topic, "three")
    assert texts(ann.look(topic, auto_advance=False)) == ["three"]
    assert texts(ann.look(topic, auto_advance=False)) == ["three"]
    assert ann.call("cursor_reset", topic_id=topic, last_seq=0)["cursor"]["last_seq"] == 0
    assert texts(ann.look(topic, include_self=True)) == ["one", "two", "three"]


def test_without_auto_advance_only_an_acknowledgement_moves_the_cursor(ann: Client, bob: Client, topic: str) -> None:
    ann.say(topic, "one", "two", "three")
    hold = partial(bob.look, topic, auto_advance=False)
    assert hold()["cursor"]["last_seq"] == 0
    assert (texts(hold(ack_through=2)), hold()["cursor"]["last_seq"]) == (["three"], 2)
    assert hold(ack_through=1)["cursor"]["last_seq"] == 2, "below the cursor it changes nothing"
    assert "3" in bob.refused("sync", topic_id=topic, auto_advance=False, ack_through=4, wait_seconds=0)["message"]
    assert hold(ack_through=3)["cursor"]["last_seq"] == 3
    assert bob.look(topic, ack_through=1)["cursor"]["last_seq"] == 3, "it means nothing where it moves by itself"


def test_a_refused_acknowledgement_sends_nothing(ann: Client, topic: str) -> None:
    outbox = [{"content_markdown": "x"}]
    code = ann.code("sync", topic_id=topic, outbox=outbox, auto_advance=False, ack_through=9, wait_seconds=0)
    assert (code, TopicMessage.objects.count()) == ("INVALID_ARGUMENT", 0)


def test_a_reset_replays_and_skips(ann: Client, bob: Client, topic: str) -> None:
    ann.say(topic, "one", "two", "three")
    bob.look(topic)
    reset = bob.call("cursor_reset", topic_id=topic, last_seq=1)
    assert reset == {"topic_id": topic, "agent_name": "bob", "cursor": reset["cursor"]}
    assert (reset["cursor"]["last_seq"], texts(bob.look(topic))) == (1, ["two", "three"])
    assert bob.call("cursor_reset", topic_id=topic)["cursor"]["last_seq"] == 0
    assert bob.call("cursor_reset", topic_id=topic, last_seq=3)["cursor"]["last_seq"] == 3
    assert bob.code("cursor_reset", topic_id=topic, last_seq=4) == "INVALID_ARGUMENT"
    assert bob.look(topic)["received_count"] == 0


def test_a_second_message_of_one_key_is_answered_with_the_first(ann: Client, bob: Client, topic: str) -> None:
    (first,) = ann.say(topic, "original", client_message_id="k")
    outbox = [
        {"content_markdown": "changed", "client_message_id": "k", "reply_to": "nowhere"},
        {"content_markdown": "new", "client_message_id": "l"},
        {"content_markdown": "newer", "client_message_id": "l"},
    ]
    again = ann.look(topic, outbox=outbox)["sent"]
    assert [each["duplicate"] for each in again] == [True, False, True]
    assert again[0]["message"] == first and again[2]["message"] == again[1]["message"]
    assert again[1]["message"]["seq"] == 2, "what is no new message takes no number"
    (other,) = bob.say(topic, "his own", client_message_id="k")
    assert other["seq"] == 3 and texts(bob.look(topic)) == ["original", "new"]


def test_a_message_that_was_sent_is_answered_after_the_topic_closed_too(ann: Client, topic: str) -> None:
    (sent,) = ann.say(topic, "x", client_message_id="k")
    ann.call("topic_close", topic_id=topic)
    assert ann.say(topic, "x", client_message_id="k") == [sent]
    assert ann.code("sync", topic_id=topic, outbox=[{"content_markdown": "y"}], wait_seconds=0) == "TOPIC_CLOSED"


def test_an_answer_names_its_question(ann: Client, bob: Client, topic: str) -> None:
    (question,) = ann.say(topic, "why?", message_type="question")
    (answer,) = bob.say(topic, "because", message_type="answer", reply_to=question["message_id"])
    assert ann.look(topic)["received"] == [answer]
    assert (answer["message_type"], answer["reply_to"]) == ("answer", question["message_id"])


@pytest.mark.parametrize("place", ["nowhere", "another topic"])
def test_one_bad_message_undoes_the_whole_outbox(ann: Client, topic: str, place: str) -> None:
    other = ann.call("topic_create", name="other")["topic_id"]
    ann.join(other, "ann")
    (there,) = ann.say(other, "there")
    reply_to = there["message_id"] if place == "another topic" else "nowhere"
    before = Event.objects.count()
    outbox = [{"content_markdown": "good"}, {"content_markdown": "bad", "reply_to": reply_to}]
    error = ann.refused("sync", topic_id=topic, outbox=outbox, wait_seconds=0)
    assert error["code"] == "INVALID_ARGUMENT" and "outbox[1].reply_to" in error["message"]
    assert (Topic.objects.get(pk=topic).last_seq, Event.objects.count()) == (0, before)
    assert ann.say(topic, "good")[0]["seq"] == 1


@pytest.mark.parametrize(
    "form",
    [lambda outbox: outbox, lambda outbox: outbox[0], json.dumps, lambda outbox: json.dumps(outbox[0])],
    ids=["a list", "an object", "a list as text", "an object as text"],
)
def test_it_takes_an_outbox_in_every_form_that_clients_send(
    ann: Client, topic: str, form: Callable[[Any], Any]
) -> None:
    sent = ann.look(topic, outbox=form([{"content_markdown": '{"a": [1]}'}]))["sent"]
    assert [each["message"]["content_markdown"] for each in sent] == ['{"a": [1]}']


def test_it_takes_the_largest_outbox(ann: Client, topic: str) -> None:
    content = "ü" * 32_768
    sent = ann.say(topic, *[content] * 50, message_type="t" * 32)
    assert [message["seq"] for message in sent] == list(range(1, 51))
    assert ann.say(topic, "x", client_message_id="k" * 128)


def test_presence_is_told_from_syncs_and_not_from_joining(ann: Client, bob: Client, topic: str) -> None:
    with time_machine.travel(datetime(2126, 3, 1, 12, tzinfo=UTC), tick=False) as clock:
        ann.say(topic, "x")
        clock.shift(10)
        assert ann.call("topic_presence", topic_id=topic, window_seconds=1)["peers"] == []
        bob.look(topic)
        clock.shift(60)
        ann.look(topic)
        clock.shift(10)
        present = ann.call("topic_presence", topic_id=topic, window_seconds=100, limit=5)
        now = datetime.now(UTC).timestamp()
        assert present == {
            "topic_id": topic,
            "window_seconds": 100,
            "limit": 5,
            "now": now,
            "count": 2,
            "peers": [
                {"agent_name": "ann", "last_seq": 0, "updated_at": now - 10, "age_seconds": 10.0},
                {"agent_name": "bob", "last_seq": 1, "updated_at": now - 70, "age_seconds": 70.0},
            ],
        }
        assert ann.call("topic_presence", topic_id=topic, limit=1)["count"] == 1
        named = [peer["agent_name"] for peer in ann.call("topic_presence", topic_id=topic, window_seconds=69)["peers"]]
        assert named == ["ann"]
        clock.shift(1000)
        assert ann.call("topic_presence", topic_id=topic) == {
            **ann.call("topic_presence", topic_id=topic, window_seconds=300, limit=200),
            "peers": [],
        }
    assert bob.code("topic_join", topic_id=topic, agent_name="ann") == "AGENT_NAME_IN_USE", "it holds no reservation"


def test_presence_takes_any_window(ann: Client, topic: str) -> None:
    ann.look(topic)
    assert ann.call("topic_presence", topic_id=topic, window_seconds=2**62, limit=2**62)["count"] == 1


def test_two_connections_of_one_name_share_its_cursor_and_lose_nothing(
    ann: Client, bob: Client, topic: str, connect: Callable[..., Client]
) -> None:
    token = bob.join(topic, "bob")
    twin = connect()
    twin.join(topic, "bob", reclaim_token=token)
    ann.say(topic, *map(str, range(5)))
    got = texts(bob.look(topic, max_items=2)) + texts(twin.look(topic, max_items=2)) + texts(bob.look(topic))
    assert got == list(map(str, range(5)))


@pytest.mark.usefixtures("committed")
def test_writers_at_once_number_their_messages_without_a_gap() -> None:
    opener = Client()
    topic = opener.call("topic_create", name="rush")["topic_id"]
    clients = [Client() for _ in range(6)]
    for number, client in enumerate(clients):
        client.join(topic, f"peer-{number}")
    at_once([partial(client.say, topic, "a", "b") for client in clients for _ in range(5)])
    rows = list(TopicMessage.objects.order_by("seq").values_list("seq", flat=True))
    assert rows == list(range(1, 61)) and Topic.objects.get().last_seq == 60
    assert [row.payload["seq"] for row in Event.objects.filter(type="topic.message").order_by("event_id")] == rows


@pytest.mark.usefixtures("committed")
def test_one_of_two_who_take_a_name_at_once_gets_it() -> None:
    topic = Client().call("topic_create", name="rush")["topic_id"]
    clients = [Client() for _ in range(6)]

    def join(client: Client) -> str:
        from nexus.core.operations import runner
        from nexus.topics.toolset import TOPICS

        body = runner.run(TOPICS, client.caller, "topic_join", {"topic_id": topic, "agent_name": "ann"})
        return body["error"]["code"] if "error" in body else "ok"

    outcomes = at_once([partial(join, client) for client in clients])
    assert sorted(outcomes) == ["AGENT_NAME_IN_USE"] * 5 + ["ok"]


@pytest.mark.usefixtures("committed")
def test_one_topic_is_made_by_many_who_want_it_at_once() -> None:
    made = at_once([partial(Client().call, "topic_create", name="rush") for _ in range(6)])
    assert len({row["topic_id"] for row in made}) == 1


@pytest.mark.usefixtures("committed")
def test_one_cursor_hands_each_message_out_once_to_many_who_share_it() -> None:
    sender = Client()
    topic = sender.call("topic_create", name="rush")["topic_id"]
    sender.join(topic, "sender")
    first = Client()
    token = first.join(topic, "bob")
    twins = [first, *(Client() for _ in range(5))]
    for twin in twins:
        twin.join(topic, "bob", reclaim_token=token)
    sender.say(topic, *map(str, range(30)))
    pages = at_once([partial(twin.look, topic, max_items=1) for twin in twins for _ in range(5)])
    assert sorted(int(text) for page in pages for text in texts(page)) == list(range(30))
