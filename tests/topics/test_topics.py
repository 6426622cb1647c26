"""Opening, finding, closing and joining topics."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import time_machine

from coordination.models import Event
from nexus.core.config import package_version
from nexus.topics.models import Peer, Topic
from tests.topics.conftest import Client


def test_it_tells_its_versions(ann: Client) -> None:
    assert ann.call("ping") == {"ok": True, "spec_version": "v6.3", "package_version": package_version()}


def test_it_opens_a_topic_and_reuses_the_newest_open_one_of_its_name(ann: Client) -> None:
    first = ann.call("topic_create", name="cache", metadata={"branch": "main"})
    second = ann.call("topic_create", name="cache", mode="new")
    assert first == {"topic_id": first["topic_id"], "name": "cache", "status": "open"}
    assert second["topic_id"] != first["topic_id"]
    assert ann.call("topic_create", name="cache", mode="reuse") == second
    assert ann.call("topic_create", name="cache") == second, "reuse is the default"
    ann.call("topic_close", topic_id=second["topic_id"])
    assert ann.call("topic_create", name="cache") == first
    ann.call("topic_close", topic_id=first["topic_id"])
    assert ann.call("topic_create", name="cache")["topic_id"] not in (first["topic_id"], second["topic_id"])


def test_a_topic_without_a_name_gets_one_of_its_own(ann: Client) -> None:
    names = {ann.call("topic_create")["name"] for _ in range(3)}
    assert len(names) == 3 and all(names)


def test_it_lists_topics_newest_first_by_status(ann: Client) -> None:
    with time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False):
        ids = [ann.call("topic_create", name=name, metadata={"n": name})["topic_id"] for name in "abc"]
        ann.call("topic_close", topic_id=ids[1], reason="done")
    listed = {status: ann.call("topic_list", status=status)["topics"] for status in ("open", "closed", "all")}
    assert ann.call("topic_list")["topics"] == listed["open"]
    assert [row["topic_id"] for row in listed["open"]] == [ids[2], ids[0]]
    assert [row["topic_id"] for row in listed["all"]] == ids[::-1]
    at = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
    assert listed["closed"] == [
        {
            "topic_id": ids[1],
            "name": "b",
            "status": "closed",
            "created_at": at,
            "closed_at": at,
            "close_reason": "done",
            "metadata": {"n": "b"},
        }
    ]
    assert listed["open"][0]["closed_at"] is None and listed["open"][0]["close_reason"] is None


def test_it_resolves_a_name_to_the_newest_open_topic_first(ann: Client) -> None:
    older = ann.call("topic_create", name="cache")
    newer = ann.call("topic_create", name="cache", mode="new")
    ann.call("topic_close", topic_id=newer["topic_id"])
    assert ann.call("topic_resolve", name="cache", allow_closed=True) == older
    ann.call("topic_close", topic_id=older["topic_id"])
    assert ann.code("topic_resolve", name="cache") == "TOPIC_NOT_FOUND"
    closed = ann.call("topic_resolve", name="cache", allow_closed=True)
    assert closed == {**newer, "status": "closed"}
    assert ann.code("topic_resolve", name="nowhere", allow_closed=True) == "TOPIC_NOT_FOUND"


def test_it_closes_a_topic_once(ann: Client, topic: str) -> None:
    closed = ann.call("topic_close", topic_id=topic, reason="merged")
    assert closed == {
        "topic_id": topic,
        "status": "closed",
        "closed_at": closed["closed_at"],
        "close_reason": "merged",
    }
    again = ann.call("topic_close", topic_id=topic, reason="another")
    assert [warning["code"] for warning in again.pop("warnings")] == ["ALREADY_CLOSED"]
    assert again == closed
    assert ann.code("topic_close", topic_id="nowhere") == "TOPIC_NOT_FOUND"


def test_a_closed_topic_is_read_and_reset_and_joined_by_id_but_takes_nothing(
    ann: Client, bob: Client, topic: str, connect: Callable[..., Client]
) -> None:
    ann.say(topic, "last words")
    ann.call("topic_close", topic_id=topic)
    assert bob.look(topic)["received_count"] == 1
    assert bob.call("cursor_reset", topic_id=topic)["cursor"]["last_seq"] == 0
    late = connect()
    assert late.join(topic, "late")
    assert late.look(topic)["received_count"] == 1
    assert late.code("topic_join", name="cache", agent_name="later") == "TOPIC_NOT_FOUND"
    assert late.call("topic_join", name="cache", agent_name="later", allow_closed=True)["status"] == "closed"
    assert ann.code("sync", topic_id=topic, outbox=[{"content_markdown": "x"}]) == "TOPIC_CLOSED"
    assert Topic.objects.get().last_seq == 1


def test_joining_reserves_the_name_and_tells_the_token(ann: Client, topic: str) -> None:
    joined = ann.call("topic_join", name="cache", agent_name="red-squirrel")
    assert joined == {
        "topic_id": topic,
        "name": "cache",
        "status": "open",
        "agent_name": "red-squirrel",
        "reclaim_token": joined["reclaim_token"],
    }
    assert len(joined["reclaim_token"]) == 32


def test_a_reserved_name_is_refused_without_its_token_and_others_are_suggested(
    bob: Client, topic: str, connect: Callable[..., Client]
) -> None:
    connect().join(topic, "ann-2")
    error = bob.refused("topic_join", topic_id=topic, agent_name="ann")
    assert error["code"] == "AGENT_NAME_IN_USE" and error["requested_agent_name"] == "ann"
    assert error["suggested_agent_names"] == ["ann-3", "ann-4", "ann-5"]
    assert connect().join(topic, error["suggested_agent_names"][0])
    for token in ("0" * 32, "x" * 255):
        assert bob.code("topic_join", topic_id=topic, agent_name="ann", reclaim_token=token) == "AGENT_NAME_IN_USE"
    for blank in ("", "  \n"):
        assert bob.code("topic_join", topic_id=topic, agent_name="ann", reclaim_token=blank) == "INVALID_ARGUMENT"
    long = "x" * 64
    connect().join(topic, long)
    assert {
        len(name) for name in bob.refused("topic_join", topic_id=topic, agent_name=long)["suggested_agent_names"]
    } == {64}


def test_a_name_is_reserved_in_its_topic_alone(bob: Client, topic: str) -> None:
    other = bob.call("topic_create", name="other")["topic_id"]
    assert bob.join(other, "ann")
    assert (bob.look(other)["agent_name"], bob.look(topic)["agent_name"]) == ("ann", "bob")


def test_a_name_without_a_reservation_gets_one_from_whoever_joins_first(
    ann: Client, topic: str, connect: Callable[..., Client]
) -> None:
    ann.say(topic, "one", "two")
    Peer.objects.filter(agent_name="bob").update(token_hash=None, last_seq=1)
    first = connect()
    token = first.join(topic, "bob")
    assert [message["seq"] for message in first.look(topic)["received"]] == [2], "its cursor stays"
    assert connect().code("topic_join", topic_id=topic, agent_name="bob") == "AGENT_NAME_IN_USE"
    assert connect().join(topic, "bob", reclaim_token=token) == token


def test_it_keeps_no_token_that_could_be_read(topic: str, bob: Client) -> None:
    token = bob.join(topic, "bob")
    assert token not in str(list(Peer.objects.values()))


def test_it_records_the_agent_of_the_connection_beside_the_name(topic: str, connect: Callable[..., Client]) -> None:
    connect(agent_id="builder").join(topic, "red-squirrel")
    assert dict(Peer.objects.values_list("agent_name", "agent_id")) == {
        "ann": None,
        "bob": None,
        "red-squirrel": "builder",
    }


def test_the_log_tells_what_happens_in_topics(ann: Client, topic: str) -> None:
    (asked,) = ann.say(topic, "why?", message_type="question")
    ann.call("topic_close", topic_id=topic, reason="done")
    ann.call("topic_close", topic_id=topic)
    events = Event.objects.filter(stream="topic").order_by("event_id")
    assert [event.type for event in events] == [
        *("topic.created", "topic.joined", "topic.joined", "topic.message", "topic.closed")
    ]
    said = events[3]
    assert said.workspace_id is None and said.payload == {
        "topic_id": topic,
        "topic": "cache",
        "message_id": asked["message_id"],
        "seq": 1,
        "sender": "ann",
        "message_type": "question",
        "reply_to": None,
        "mentions": [],
    }
    assert events[4].payload["reason"] == "done"


@pytest.mark.parametrize("tool", ["topic_presence", "topic_close", "topic_join", "sync", "cursor_reset"])
def test_an_unknown_topic_is_not_found(ann: Client, tool: str) -> None:
    more = {"agent_name": "ann"} if tool == "topic_join" else {}
    assert ann.code(tool, topic_id="nowhere", **more) == "TOPIC_NOT_FOUND"
