"""Searching messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nexus.topics import search
from nexus.topics.models import Topic, TopicMessage
from tests.conftest import examples
from tests.topics.conftest import Client


def found(client: Client, query: str, **more: Any) -> list[str]:
    results = client.call("messages_search", query=query, mode="fts", include_content=True, **more)["results"]
    return [result["content_markdown"] for result in results]


@pytest.fixture
def other(ann: Client) -> str:
    """A second topic that ann has joined."""
    topic_id: str = ann.call("topic_create", name="other")["topic_id"]
    ann.join(topic_id, "ann")
    return topic_id


def test_it_finds_messages_of_all_topics_or_of_one_without_joining(
    ann: Client, topic: str, other: str, connect: Callable[..., Client]
) -> None:
    ann.say(topic, "the cache key is wrong", "nothing of it")
    ann.say(other, "a cache elsewhere")
    stranger = connect()
    answer = stranger.call("messages_search", query="cache", topic_id=topic, mode="fts")
    (result,) = answer.pop("results")
    assert answer == {"query": "cache", "mode": "fts", "topic_id": topic, "include_content": False, "count": 1}
    assert set(result) == {
        *("topic_id", "topic_name", "message_id", "seq", "sender", "message_type", "created_at", "snippet", "rank")
    }
    assert (result["topic_id"], result["topic_name"], result["seq"], result["sender"]) == (topic, "cache", 1, "ann")
    assert result["snippet"] == "the \ue000cache\ue001 key is wrong"
    assert sorted(found(stranger, "cache")) == ["a cache elsewhere", "the cache key is wrong"]
    assert stranger.code("messages_search", query="cache", topic_id="nowhere") == "TOPIC_NOT_FOUND"


def test_it_finds_and_marks_one_and_two_letters_as_a_whole_word_alone(ann: Client, topic: str) -> None:
    ann.say(topic, "an apple and a pear", "another apple")
    (result,) = ann.call("messages_search", query="a appl", mode="fts")["results"]
    assert result["snippet"] == "an \ue000apple\ue001 and \ue000a\ue001 pear"
    assert found(ann, "an pe", topic_id=topic) == []


def test_it_ranks_and_limits(ann: Client, topic: str) -> None:
    ann.say(topic, "one retry among many other words that say nothing of it at all", "retry the retry", "unrelated")
    assert found(ann, "retry") == [
        "retry the retry",
        "one retry among many other words that say nothing of it at all",
    ]
    assert found(ann, "retry", limit=1) == ["retry the retry"]


@pytest.mark.parametrize(
    ("query", "hit"),
    [
        *(("migr", True), ("MIGRATION", True), ("migration foo-bar", True), ("foo-bar", True), ("überlang", True)),
        *(('"foo', True), ("foo AND", False), ("foo*", True), ("migration nothing", False), ("uberlang", True)),
        *(("*", False), ('"', False), ("-", False), ("NEAR(", False), ("content_markdown:foo", False)),
    ],
)
def test_any_text_is_a_query(ann: Client, topic: str, query: str, hit: bool) -> None:
    ann.say(topic, "The migration of foo-bar is überlang.")
    assert bool(found(ann, query)) is hit
    assert bool(found(ann, query, topic_id=topic)) is hit


def test_an_accent_parts_no_words_and_a_text_of_them_holds_nobody_up(ann: Client, topic: str) -> None:
    ann.say(topic, "a\u0301b, a-b", "c" + "\u0301" * 32_000 + " c-d")
    (result,) = ann.call("messages_search", query="a-b", mode="fts")["results"]
    assert result["snippet"] == "a\u0301b, \ue000a-b\ue001"
    (result,) = ann.call("messages_search", query="c-d", mode="fts")["results"]
    assert result["snippet"].endswith("\ue000c-d\ue001")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(query=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40))
def test_no_text_breaks_it(ann: Client, topic: str, query: str) -> None:
    if query.strip():
        assert ann.call("messages_search", query=query, topic_id=topic)["count"] == 0


def test_hybrid_finds_what_full_text_finds_and_says_how_to_get_more(ann: Client, topic: str) -> None:
    ann.say(topic, "the cache key")
    answer = ann.call("messages_search", query="cache")
    assert (answer["mode"], answer["count"]) == ("hybrid", 1)
    assert answer["results"][0]["semantic_score"] is None and answer["results"][0]["fts_rank"] < 0
    assert "extra semantic: " in answer["warnings"][0]["message"]


def test_semantic_says_what_is_missing(ann: Client, topic: str) -> None:
    error = ann.refused("messages_search", query="cache", mode="semantic")
    assert error["code"] == "INVALID_ARGUMENT" and "extra semantic: " in error["message"]


def test_the_index_follows_every_change_and_can_be_made_anew(ann: Client, topic: str, other: str) -> None:
    ann.say(topic, "first words", "second words")
    ann.say(other, "third words")
    TopicMessage.objects.filter(content_markdown="first words").update(content_markdown="changed words")
    assert (found(ann, "first"), found(ann, "changed")) == ([], ["changed words"])
    TopicMessage.objects.filter(content_markdown="second words").delete()
    assert sorted(found(ann, "words")) == ["changed words", "third words"]
    Topic.objects.filter(pk=other).delete()
    assert found(ann, "words") == ["changed words"]
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("INSERT INTO topic_search(topic_search) VALUES ('integrity-check')")
            cursor.execute("INSERT INTO topic_search(topic_search) VALUES ('delete-all')")
        else:
            cursor.execute("DELETE FROM topic_search")
    assert found(ann, "words") == []
    search.rebuild()
    assert found(ann, "words") == ["changed words"]


def test_of_very_many_hits_the_newest_are_ranked(ann: Client, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "RANKED", 2)
    ann.say(topic, "retry retry retry", "a retry of it", "retry retry")
    assert found(ann, "retry", limit=1) == ["retry retry"]
    assert len(found(ann, "retry", limit=3)) == 3
