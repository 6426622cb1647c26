"""What operators do: the operations, the command, and what keeps a store sound."""

from __future__ import annotations

import io
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import time_machine
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordination.models import Event
from nexus.maintenance import retention
from nexus.maintenance.check_inputs import FileExamination
from nexus.topics import maintenance, metrics
from nexus.topics.models import Peer, Topic, TopicMessage
from nexus.topics.toolset import TOPICS
from tests.conftest import at_once
from tests.topics.conftest import Client


@pytest.fixture
def olga(db: None) -> Client:
    return Client(operator="olga")


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def nexus(db: None) -> Callable[..., Ran]:
    """Run `nexus topics`."""

    def run(*arguments: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        with pytest.raises(SystemExit) as exit:
            call_command("topics", *arguments, stdout=out, stderr=err)
        return Ran(int(exit.value.code or 0), out.getvalue(), err.getvalue())

    return run


@pytest.mark.parametrize("name", [name for name, each in TOPICS.operations.items() if not each.tool])
def test_it_is_for_operators(ann: Client, name: str) -> None:
    needed = {"topic_id": "x", "message_id": "x", "name": "x", "message": {"content_markdown": "x"}}
    fields = TOPICS.operations[name].params.model_fields
    assert ann.code(name, **{field: value for field, value in needed.items() if field in fields}) == "NOT_OWNER"


def test_operators_speak_as_one_peer_whose_name_nobody_else_takes(bob: Client, olga: Client, topic: str) -> None:
    hello = {"content_markdown": "hello", "client_message_id": "a"}
    first = olga.call("topic_post", topic_id=topic, message=hello, seen=0)["message"]
    again = Client(operator="otto").call("topic_post", topic_id=topic, message=hello, seen=1)["message"]
    assert again == first and first["sender"] == "operator"
    assert bob.code("topic_join", topic_id=topic, agent_name="operator") == "AGENT_NAME_IN_USE"
    assert (bob.look(topic)["received_count"], Topic.objects.get().last_seq) == (1, 1)
    acted = Event.objects.filter(type="operator.acted").order_by("event_id")
    assert [event.payload["operator"] for event in acted] == ["olga", "otto"]


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("INVALID_ARGUMENT", {"message": {"content_markdown": "x", "reply_to": "elsewhere"}}),
        ("INVALID_ARGUMENT", {"seen": 99}),
        ("TOPIC_NOT_FOUND", {"topic_id": "none"}),
    ],
)
def test_an_operators_message_that_is_refused_joins_nothing(
    olga: Client, topic: str, code: str, given: dict[str, Any]
) -> None:
    assert olga.code("topic_post", **{"topic_id": topic, "message": {"content_markdown": "x"}, **given}) == code
    assert not Topic.objects.get().peers.filter(agent_name="operator").exists()
    assert not Event.objects.filter(type="operator.acted").exists()


@pytest.mark.usefixtures("committed")
def test_operators_who_write_at_once_are_one_peer() -> None:
    topic = Client().call("topic_create", name="t")["topic_id"]
    olgas = [Client(operator="olga") for _ in range(4)]
    message = {"content_markdown": "x"}
    said = at_once([partial(olga.call, "topic_post", topic_id=topic, message=message) for olga in olgas])
    assert {each["message"]["sender"] for each in said} == {"operator"}
    assert Peer.objects.count() == Event.objects.filter(type="topic.joined").count() == 1


def test_a_topic_is_renamed_with_its_mentions_or_without(ann: Client, olga: Client, topic: str) -> None:
    ann.say(topic, "in cache, not in cached, cache-key or (cache)", "elsewhere")
    assert olga.call("topic_rename", topic_id=topic, name="store") == {
        "topic_id": topic,
        "name": "store",
        "status": "open",
        "messages": 0,
    }
    assert olga.call("topic_rename", topic_id=topic, name="cache")["messages"] == 0
    assert olga.call("topic_rename", topic_id=topic, name="st\\0re", rewrite_messages=True)["messages"] == 1
    said = "in st\\0re, not in cached, cache-key or (st\\0re)"
    assert TopicMessage.objects.get(seq=1).content_markdown == said
    assert ann.call("messages_search", query="st\\0re", mode="fts")["count"] == 1
    assert ann.call("topic_resolve", name="st\\0re")["topic_id"] == topic
    renamed = Event.objects.filter(type="topic.renamed").last()
    assert renamed is not None and renamed.payload["operator"] == "olga" and renamed.payload["before"] == "cache"
    assert olga.code("topic_rename", topic_id="nowhere", name="x") == "TOPIC_NOT_FOUND"


def test_a_rename_that_would_make_a_message_too_long_changes_nothing(ann: Client, olga: Client, topic: str) -> None:
    ann.say(topic, "cache", "cache " * 10_000)
    assert olga.code("topic_rename", topic_id=topic, name="x" * 255, rewrite_messages=True) == "INVALID_ARGUMENT"
    assert (Topic.objects.get().name, TopicMessage.objects.get(seq=1).content_markdown) == ("cache", "cache")


def test_a_topic_is_deleted_with_all_that_belongs_to_it(ann: Client, olga: Client, topic: str) -> None:
    ann.say(topic, "one", "two")
    assert olga.call("topic_delete", topic_id=topic) == {"topic_id": topic, "messages": 2, "peers": 2}
    assert ann.code("sync", topic_id=topic) == "TOPIC_NOT_FOUND"
    assert ann.call("messages_search", query="one", mode="fts")["count"] == 0
    assert Event.objects.get(type="topic.deleted").payload["messages"] == 2


def test_a_message_is_deleted_with_its_replies_and_its_number_stays_free(
    ann: Client, bob: Client, olga: Client, topic: str
) -> None:
    (root,) = ann.say(topic, "root")
    (reply,) = ann.say(topic, "reply", reply_to=root["message_id"])
    ann.say(topic, "reply to it", reply_to=reply["message_id"])
    ann.say(topic, "other")
    assert olga.call("topic_message_delete", message_id=root["message_id"])["messages"] == 3
    assert [message["seq"] for message in bob.look(topic)["received"]] == [4]
    assert ann.say(topic, "next")[0]["seq"] == 5
    assert olga.code("topic_message_delete", message_id=root["message_id"]) == "INVALID_ARGUMENT"


def test_deleting_a_message_costs_as_many_queries_however_many_replies_it_has(
    counted_alone: None, ann: Client, olga: Client, topic: str
) -> None:
    """A long chain of them, which comes back to its beginning as only an imported one can."""

    def deleted(replies: int) -> int:
        (first,) = ann.say(topic, "first")
        last = first
        for _ in range(replies):
            (last,) = ann.say(topic, "reply @ann", reply_to=last["message_id"])
        TopicMessage.objects.filter(message_id=first["message_id"]).update(reply_to=last["message_id"])
        with CaptureQueriesContext(connection) as captured:
            assert olga.call("topic_message_delete", message_id=first["message_id"])["messages"] == replies + 1
        return len(captured)

    assert deleted(20) == deleted(2)
    assert not TopicMessage.objects.exists()


def test_an_operator_sees_the_topics_and_their_messages_without_joining(ann: Client, olga: Client, topic: str) -> None:
    ann.say(topic, *map(str, range(5)))
    (row,) = olga.call("topic_overview")["topics"]
    assert (row["topic_id"], row["last_seq"], row["peers"]) == (topic, 5, 2) and row["last_message_at"]
    read = olga.call("topic_read", topic_id=topic, limit=2)
    assert [message["seq"] for message in read["messages"]] == [4, 5]
    read = olga.call("topic_read", topic_id=topic, after=1, limit=2)
    assert [message["seq"] for message in read["messages"]] == [2, 3]


def test_the_command_lists_shows_and_finds(ann: Client, topic: str, nexus: Callable[..., Ran]) -> None:
    (said,) = ann.say(topic, "the cache key\nis wrong \x1b[31m", message_type="question")
    listed = nexus()
    assert listed.code == 0 and topic in listed.out and "open" in listed.out
    assert json.loads(nexus("list", "--json").out)["topics"][0]["last_seq"] == 1
    assert nexus("list", "--status", "closed").code == 3
    shown = nexus("show", "cache").out
    assert "[1] ann (question)" in shown and "  the cache key\n  is wrong" in shown and "\x1b" not in shown
    assert json.loads(nexus("show", topic, "--json").out)["messages"] == [said]
    assert "»cache« key" in nexus("search", "cach").out and nexus("search", "nothing").code == 3
    assert nexus("presence", "cache").code == 0
    unknown = nexus("show", "nowhere")
    assert unknown.code == 1 and "TOPIC_NOT_FOUND" in unknown.err and "`nexus topics`" in unknown.err


def test_the_command_posts_and_reclaims(nexus: Callable[..., Ran]) -> None:
    first = json.loads(nexus("post", "releases", "1.0 is out", "--as", "bot", "--json").out)
    assert (first["seq"], first["sender"]) == (1, "bot")
    token = first["reclaim_token"]
    assert json.loads(nexus("join", "releases", "bot", "--token", token, "--json").out)["reclaim_token"] == token
    reply = nexus(
        "post", "releases", "--as", "bot", "--reply-to", first["message_id"], "--type", "answer", "1.1", "--json"
    )
    assert (json.loads(reply.out)["reply_to"], TopicMessage.objects.count()) == (first["message_id"], 2)


def test_the_command_posts_as_the_operators_do_on_pages(nexus: Callable[..., Ran]) -> None:
    for text in ("1.0 is out", "1.1 is out"):
        said = json.loads(nexus("post", "releases", text, "--json").out)
        assert said["sender"] == "operator" and "reclaim_token" not in said
    assert "--as" in nexus("post", "releases", "1.2", "--token", "x").err
    assert {event.payload["operator"] for event in Event.objects.filter(type="operator.acted")} == {"local"}


def test_the_command_exports_and_imports(
    ann: Client, topic: str, nexus: Callable[..., Ran], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ann.say(topic, "one\r\ntwo")
    nexus("export", "cache")
    assert "\n\none\r\ntwo\n" in capfd.readouterr().out
    nexus("export", "cache", "--format", "json")
    assert json.loads(capfd.readouterr().out)["messages"][0]["content_markdown"] == "one\r\ntwo"
    (tmp_path / "bad").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe")
    for bad in (tmp_path / "bad", tmp_path / "missing", tmp_path, tmp_path / "pipe"):
        ran = nexus("import", str(bad))
        assert ran.code == 1 and "Nothing was imported" in ran.err


def test_the_command_renames_closes_and_reindexes(ann: Client, topic: str, nexus: Callable[..., Ran]) -> None:
    assert nexus("rename", "cache", "store").code == 0
    assert nexus("close", "store", "--reason", "done").code == 0
    row = Topic.objects.get()
    assert (row.name, row.status, row.close_reason) == ("store", "closed", "done")
    assert "0" in nexus("reindex").out


@pytest.mark.sqlite  # whose file doctor opens
@pytest.mark.usefixtures("committed")
def test_doctor_sees_and_mends_a_search_that_is_out_of_step(request: pytest.FixtureRequest) -> None:
    ann = Client()
    topic = ann.call("topic_create", name="cache")["topic_id"]
    ann.join(topic, "ann")
    ann.say(topic, "one", "two")

    def found() -> list[Any]:
        with closing(sqlite3.connect(settings.NEXUS.database)) as store:
            home = settings.NEXUS.home
            examination = FileExamination(home, settings.NEXUS.database, datetime.now(UTC), store)
            return [finding for check in maintenance.CHECKS for finding in check.check(examination)]

    assert found() == []
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO topic_search(topic_search) VALUES ('delete-all')")
    (finding,) = found()
    assert finding.mend is not None
    finding.mend()
    assert found() == [] and ann.call("messages_search", query="one", mode="fts")["count"] == 1


def test_retention_deletes_closed_topics_messages_first(ann: Client) -> None:
    with time_machine.travel(datetime(2126, 3, 1, tzinfo=UTC), tick=False) as clock:
        ids = {}
        for name in ("old", "young", "open"):
            ids[name] = ann.call("topic_create", name=name)["topic_id"]
            ann.join(ids[name], "ann")
            ann.say(ids[name], "x", "y")
        ann.call("topic_close", topic_id=ids["old"])
        clock.shift(timedelta(days=90))
        ann.call("topic_close", topic_id=ids["young"])
        assert not any(lane.found for name, lane in retention.prune(dry_run=True).items() if "topic" in name)
        clock.shift(timedelta(days=1))
        done = retention.prune()
        assert (done["closed_topic_messages"].deleted, Topic.objects.count()) == (2, 2)
        assert set(TopicMessage.objects.values_list("topic_id", flat=True)) == {ids["young"], ids["open"]}


def test_metrics_count_topics_and_messages(ann: Client, topic: str) -> None:
    ann.say(topic, "x", "y")
    told = {
        sample.name + str(sample.labels.get("status", "")): sample.value
        for family in metrics.collect()
        for sample in family.samples
    }
    assert told == {"nexus_topicsopen": 1, "nexus_topicsclosed": 0, "nexus_topic_messages": 2}
