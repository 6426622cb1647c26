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
from nexus.topics.models import Topic, TopicMessage
from tests.conftest import Call, at_once
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


def test_it_hands_out_the_oldest_first_until_there_is_no_more(ann: Client, bob: Client, topic: str) -> None:
    ann.say(topic, *map(str, range(45)))
    pages = [bob.look(topic) for _ in range(4)]
    assert [len(page["received"]) for page in pages] == [20, 20, 5, 0]
    assert [page["has_more"] for page in pages] == [True, True, False, False]
    assert [page["cursor"]["last_seq"] for page in pages] == [20, 40, 45, 45]
    assert [text for page in pages for text in texts(page)] == list(map(str, range(45)))


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
        from nexus.core.operations import dispatch
        from nexus.topics.toolset import TOPICS

        body = dispatch.run(TOPICS, client.caller, "topic_join", {"topic_id": topic, "agent_name": "ann"})
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


def test_a_message_to_a_name_that_reaches_nobody_says_so(ann: Client, topic: str, call: Call) -> None:
    call("agent_register", agent_id="cleo")
    sent = ann.look(topic, outbox=[{"content_markdown": "@bob, @cleo. and @dora: look. a@mail.example"}])
    [warning] = sent["warnings"]
    assert warning["code"] == "NOBODY_NAMED" and "the name @dora: nobody" in warning["message"]
    assert "warnings" not in ann.look(topic, outbox=[{"content_markdown": "@bob and @cleo."}])
    posted = Client(operator="olga").call("topic_post", topic_id=topic, message={"content_markdown": "@dora?"}, seen=2)
    assert posted["warnings"] == [warning]
