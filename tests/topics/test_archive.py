"""Topics as files, and the databases of Agent Bus."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from nexus.core.operations.errors import NexusError
from nexus.topics import agent_bus, archive, connections, services
from nexus.topics.models import Peer, Topic, TopicMessage
from nexus.topics.toolset import TopicCode
from tests.topics.agent_bus import AT, ROWS, SCHEMA
from tests.topics.conftest import Client, texts


def everything() -> dict[str, list[Any]]:
    """All rows of topics, without what a store numbers by itself."""
    hidden = {"document", "id", "own_through"}
    return {
        model.__name__: [
            {name: value for name, value in row.items() if name not in hidden}
            for row in model._default_manager.order_by("created_at", "pk").values()
        ]
        for model in (Topic, TopicMessage, Peer)
    }


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(NexusError) as caught, transaction.atomic():
        call()
    assert caught.value.code == TopicCode.INVALID_ARGUMENT
    assert "Traceback" not in caught.value.message and "sqlite3" not in caught.value.message
    return caught.value.message


@pytest.fixture
def lively(ann: Client, bob: Client, topic: str) -> Topic:
    """A topic in which everything that a file may hold happened."""
    (question,) = ann.say(
        topic, "why?\n\n<!-- nexus-message {} -->\n\n## [9]", message_type="question", client_message_id="k"
    )
    bob.say(topic, "because --> \r\n", reply_to=question["message_id"], metadata={"a": ["-->", None, 1.5]})
    bob.look(topic)
    ann.call("topic_close", topic_id=topic, reason="done\nat last")
    Topic.objects.filter(pk=topic).update(metadata={"ticket": 12})
    return Topic.objects.get(pk=topic)


def test_the_file_of_a_topic_holds_all_of_it(lively: Topic, topic: str) -> None:
    lively.refresh_from_db()
    document = json.loads("".join(archive.to_json(lively)))
    assert (document["topic_id"], document["metadata"], document["close_reason"]) == (
        topic,
        {"ticket": 12},
        "done\nat last",
    )
    assert [peer["agent_name"] for peer in document["peers"]] == ["ann", "bob"] and "token" not in json.dumps(document)
    question, answer = document["messages"]
    assert (answer["content_markdown"], answer["reply_to"]) == ("because --> \r\n", question["message_id"])
    assert answer["metadata"] == {"a": ["-->", None, 1.5]}
    text = "".join(archive.to_markdown(lively))
    assert "\n\nbecause --> \r\n\n" in text and '"metadata":{"a":["--\\u003e",null,1.5]}' in text


def test_a_topic_that_goes_on_meanwhile_is_written_as_it_was(ann: Client, bob: Client, topic: str) -> None:
    row = Topic.objects.get(pk=topic)
    bob.say(topic, "one", "two")
    pieces = archive.to_json(row)
    text = next(pieces)
    bob.say(topic, "three")
    assert [each["content_markdown"] for each in json.loads(text + "".join(pieces))["messages"]] == ["one", "two"]


def test_a_file_may_begin_after_a_message(lively: Topic) -> None:
    assert [each["seq"] for each in json.loads("".join(archive.to_json(lively, after=1)))["messages"]] == [2]
    assert "## [1]" not in "".join(archive.to_markdown(lively, after=1))


# Agent Bus


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database as Agent Bus writes it."""
    file = tmp_path / "agent_bus.sqlite"
    with closing(sqlite3.connect(file)) as store, store:
        store.executescript(SCHEMA)
        for table, rows in ROWS.items():
            store.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return file


def take_in(database: Path, **more: Any) -> services.ChangeCounts:
    with agent_bus.opened(database) as store:
        return agent_bus.restore(store, operator="olga", **more)


def execute(database: Path, statement: str) -> None:
    with closing(sqlite3.connect(database)) as store, store:
        store.execute(statement)


def test_it_takes_in_a_database_of_agent_bus(database: Path, ann: Client, connect: Callable[..., Client]) -> None:
    before = database.read_bytes()
    assert take_in(database) == (3, 3, 3)
    assert database.read_bytes() == before
    listed = ann.call("topic_list", status="all")["topics"]
    assert [(row["topic_id"], row["status"], row["created_at"]) for row in listed] == [
        ("ccc", "open", AT + 3),
        ("bbb", "closed", AT + 1),
        ("aaa", "open", AT),
    ]
    assert (listed[1]["closed_at"], listed[1]["close_reason"], listed[2]["metadata"]) == (
        AT + 2,
        "superseded",
        {"ticket": 12},
    )
    heron = connect()
    assert heron.code("topic_join", topic_id="aaa", agent_name="blue-heron") == "AGENT_NAME_IN_USE"
    assert heron.join("aaa", "blue-heron", reclaim_token="5cd1") == "5cd1"
    got = heron.look("aaa", include_self=True)["received"]
    assert got[0] == {
        "message_id": "m1",
        "topic_id": "aaa",
        "seq": 1,
        "sender": "red-squirrel",
        "message_type": "question",
        "reply_to": None,
        "content_markdown": "Which?\n\n- a",
        "metadata": {"file": "x"},
        "client_message_id": "q1",
        "created_at": AT + 4,
    }
    assert [message["reply_to"] for message in got] == [None, "m1"]
    squirrel = connect()
    squirrel.join("aaa", "red-squirrel", reclaim_token="d88215a9")
    assert squirrel.look("aaa")["cursor"]["last_seq"] == 2
    assert squirrel.say("aaa", "again", client_message_id="q1")[0]["message_id"] == "m1"
    assert squirrel.say("aaa", "new")[0]["seq"] == 4, "numbers that were given out are not given out again"
    owl = connect()
    assert owl.join("aaa", "old-owl") and [m["seq"] for m in owl.look("aaa")["received"]] == [2, 4]
    assert texts(owl.look("aaa")) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE meta SET value = '5'",
        "DELETE FROM meta",
        "DROP TABLE meta",
        "DROP TABLE messages",
        "UPDATE messages SET seq = 1",
        "UPDATE messages SET seq = 'x' WHERE message_id = 'm2'",
        "UPDATE messages SET metadata_json = '{' WHERE message_id = 'm2'",
        "UPDATE messages SET metadata_json = '[]' WHERE message_id = 'm2'",
        "UPDATE messages SET created_at = 1e300 WHERE message_id = 'm2'",
        "UPDATE messages SET created_at = 'soon' WHERE message_id = 'm2'",
        "UPDATE messages SET sender = '' WHERE message_id = 'm4'",
        "UPDATE topics SET status = 'gone' WHERE topic_id = 'ccc'",
        "UPDATE topics SET closed_at = NULL",
        "UPDATE topics SET name = x'ff' WHERE topic_id = 'ccc'",
        "UPDATE messages SET content_markdown = 'a' || char(0) WHERE message_id = 'm2'",
        """UPDATE messages SET metadata_json = '{"a": ["\\u0000"]}' WHERE message_id = 'm2'""",
        "UPDATE cursors SET last_seq = 99",
        "UPDATE cursors SET last_seq = -1",
    ],
)
def test_a_bad_database_is_refused_whole(database: Path, ann: Client, statement: str) -> None:
    execute(database, statement)
    before = everything()
    assert "Nothing was imported" in refused(lambda: take_in(database))
    assert everything() == before


def test_a_damaged_database_is_refused(database: Path, ann: Client) -> None:
    whole = database.read_bytes()
    for damaged in (whole[:5000], whole[:100] + b"\xff" * 4000 + whole[4100:], b"SQLite format 3\0" + b"x" * 10_000):
        database.write_bytes(damaged)
        refused(lambda: take_in(database))


@pytest.mark.parametrize(
    ("version", "words"), [("7", "newer Agent Bus (schema 7) than this Nexus knows (6). Update Nexus"), ("5", "0.5")]
)
def test_a_database_of_another_version_says_what_to_do(database: Path, db: None, version: str, words: str) -> None:
    execute(database, f"UPDATE meta SET value = '{version}'")
    assert words in refused(lambda: take_in(database))


def test_a_locked_database_says_to_stop_its_owner(database: Path, db: None) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as its_owner:
        its_owner.execute("PRAGMA journal_mode = WAL")
        its_owner.execute("PRAGMA locking_mode = EXCLUSIVE")
        its_owner.execute("UPDATE topics SET name = name")
        assert "locked by a running Agent Bus. Stop it" in refused(lambda: take_in(database))
        its_owner.execute("UPDATE topics SET name = name")


def test_what_its_owner_writes_meanwhile_is_left_out_whole(
    database: Path, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_peer = agent_bus._peer
    with closing(sqlite3.connect(database, isolation_level=None)) as its_owner:
        its_owner.execute("PRAGMA journal_mode = WAL")
        its_owner.execute("UPDATE topics SET name = name")

        def meanwhile(row: sqlite3.Row) -> dict[str, Any]:
            its_owner.execute("UPDATE topics SET name = 'renamed' WHERE topic_id = 'bbb'")
            its_owner.execute("UPDATE cursors SET last_seq = 3")
            return read_peer(row)

        monkeypatch.setattr(agent_bus, "_peer", meanwhile)
        with agent_bus.opened(database) as store:
            topics = store.topics
        assert [(topic.name, [peer.last_seq for peer in topic.peers]) for topic in topics][:2] == [
            ("cache-key", [0, 1, 2]),
            ("old plan", []),
        ]
        assert its_owner.execute("SELECT name FROM topics WHERE topic_id = 'bbb'").fetchone() == ("renamed",)


def test_a_database_on_a_read_only_disk_is_read(database: Path, db: None) -> None:
    for path in (database, database.parent):
        path.chmod(0o500)
    try:
        assert take_in(database).topics == 3
    finally:
        database.parent.chmod(0o700)


def test_a_database_is_taken_in_once(database: Path, ann: Client) -> None:
    take_in(database)
    before = everything()
    assert "is here already" in refused(lambda: take_in(database))
    assert everything() == before
    assert not connections._held


@pytest.mark.parametrize("at", [1, 2])
def test_an_import_that_was_killed_goes_on(
    database: Path, ann: Client, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(agent_bus, "AT_ONCE", 1)

    def killed(checked: int, stored: int) -> None:
        if stored == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_in(database, progress=killed)
    told: list[tuple[int, int]] = []
    assert take_in(database, progress=lambda *done: told.append(done)) == (2, 3 - at, 0)
    assert told == [*((checked, 0) for checked in (1, 2, 3)), *((3, stored) for stored in range(1, 4 - at))]
    whole = everything()
    assert "is here already" in refused(lambda: take_in(database))
    assert everything() == whole
    stored = TopicMessage.objects.order_by("topic_id", "seq")
    assert list(stored.values_list("message_id", flat=True)) == ["m1", "m2", "m4"]


def test_others_write_while_much_is_imported(committed: None, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_bus, "AT_ONCE", 1)
    held: list[bool] = []
    take_in(database, progress=lambda checked, stored: held.append(connection.in_atomic_block))
    assert held == [False] * 6


def test_a_database_that_is_written_to_meanwhile_ends_the_import(database: Path, ann: Client) -> None:
    def meanwhile(checked: int, stored: int) -> None:
        if checked == 2:
            execute(database, "UPDATE messages SET content_markdown = 'y' || content_markdown")

    before = everything()
    assert "was written to meanwhile. Run it again" in refused(lambda: take_in(database, progress=meanwhile))
    assert everything() == before


def test_a_topic_that_went_on_here_is_not_mixed_with_its_file(database: Path, ann: Client) -> None:
    take_in(database)
    TopicMessage.objects.filter(message_id="m1").delete()
    ann.join("aaa", "ann")
    ann.say("aaa", "after")
    before = everything()
    assert "with other messages" in refused(lambda: take_in(database))
    assert everything() == before
