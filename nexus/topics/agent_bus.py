"""Import from a database of Agent Bus: topics, messages, cursors, and reservations with their tokens."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from django.db import IntegrityError
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator

from coordination.services import audit
from nexus.core.clock import now
from nexus.core.database.sqlite.errors import why_unreadable
from nexus.core.database.store import write
from nexus.core.operations.parameters import MAX_ID, MAX_INTEGER
from nexus.core.operations.validation import unstorable
from nexus.core.sqlite import connect
from nexus.topics.models import Peer, Topic, TopicMessage
from nexus.topics.naming import MAX_AGENT_NAME, MAX_CLIENT_MESSAGE_ID, MAX_MESSAGE_TYPE, MAX_TOPIC_NAME
from nexus.topics.parameters import Seq
from nexus.topics.services import ChangeCounts, digest
from nexus.topics.toolset import argument

AT_ONCE = 500  # messages read into memory at once
TWICE = "Nothing was imported: two topics, peers or messages of the database share an id or a number."
SCHEMA_VERSION = 6  # of Agent Bus 0.5
LOCKED_SECONDS = 1.0  # an owner that holds its database for longer does not let it go
PEERS = """
    SELECT name AS agent_name, r.reclaim_token, coalesce(c.last_seq, 0) AS last_seq,
           coalesce(r.created_at, c.updated_at) AS created_at, r.last_claimed_at, c.updated_at
    FROM (SELECT agent_name AS name FROM cursors WHERE topic_id = :topic
          UNION SELECT agent_name FROM agent_name_reservations WHERE topic_id = :topic)
    LEFT JOIN cursors c ON c.topic_id = :topic AND c.agent_name = name
    LEFT JOIN agent_name_reservations r ON r.topic_id = :topic AND r.agent_name = name
    ORDER BY name
"""
MESSAGES = "SELECT * FROM messages WHERE topic_id = :topic ORDER BY seq"
SENT_TWICE = """
    SELECT EXISTS (SELECT 1 FROM messages WHERE client_message_id IS NOT NULL
                   GROUP BY topic_id, sender, client_message_id HAVING count(*) > 1)
"""


Identifier = Annotated[str, Field(min_length=1, max_length=MAX_ID)]


class Part(BaseModel):
    """Base of the rows of a database."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)

    @field_validator("*")
    @classmethod
    def storable(cls, value: Any) -> Any:
        """Return the value unchanged. Raises ValueError where no store can hold it, as with NUL characters."""
        if isinstance(value, str | dict) and unstorable({"it": value}, lambda _: math.inf):
            raise ValueError("cannot be stored")
        return value


class BusMessage(Part):
    message_id: Identifier
    seq: Annotated[int, Field(ge=1, le=MAX_INTEGER)]
    sender: Annotated[str, Field(min_length=1, max_length=MAX_AGENT_NAME)]
    message_type: Annotated[str, Field(max_length=MAX_MESSAGE_TYPE)]
    reply_to: Identifier | None = None
    metadata: dict[str, Any] | None = None
    client_message_id: Annotated[str, Field(max_length=MAX_CLIENT_MESSAGE_ID)] | None = None
    created_at: AwareDatetime
    content_markdown: str


class BusPeer(Part):
    agent_name: Annotated[str, Field(min_length=1, max_length=MAX_AGENT_NAME)]
    token_hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    last_seq: Seq = 0
    created_at: AwareDatetime
    claimed_at: AwareDatetime | None = None
    synced_at: AwareDatetime | None = None


class BusTopic(Part):
    topic_id: Identifier
    name: Annotated[str, Field(min_length=1, max_length=MAX_TOPIC_NAME)]
    status: Literal["open", "closed"]
    metadata: dict[str, Any] | None = None
    last_seq: Seq
    created_at: AwareDatetime
    last_message_at: AwareDatetime | None = None
    closed_at: AwareDatetime | None = None
    close_reason: str | None = None
    peers: list[BusPeer]


class AgentBusStore:
    """An open database, read in one state."""

    def __init__(self, database: Path, connection: sqlite3.Connection) -> None:
        self._database, self._connection = database, connection
        self._before = _state(database)
        with _readable(database):
            connection.execute("BEGIN")
            _check_version(connection)
            if connection.execute(SENT_TWICE).fetchone()[0]:
                raise argument(TWICE)
            (self.messages,) = connection.execute("SELECT count(*) FROM messages").fetchone()
            rows = connection.execute("SELECT * FROM topics ORDER BY created_at").fetchall()
            self.topics = [_topic(connection, row) for row in rows]

    def messages_of(self, topic: BusTopic) -> Iterator[list[BusMessage]]:
        """Yield the messages of a topic, some hundred at once, oldest first."""
        with _readable(self._database):
            cursor = self._connection.execute(MESSAGES, {"topic": topic.topic_id})
        while True:
            with _readable(self._database):
                part = [BusMessage.model_validate(_message(row)) for row in cursor.fetchmany(AT_ONCE)]
            if _state(self._database) != self._before:
                raise argument(f"The import stopped: {self._database} was written to meanwhile. Run it again.")
            if not part:
                return
            yield part


@contextmanager
def opened(database: Path) -> Iterator[AgentBusStore]:
    """Open a database, whatever its owner writes meanwhile. Raises INVALID_ARGUMENT, with what to do, for one that
    cannot be read, or is not of schema 6."""
    mode = "mode=ro" if _log(database).exists() else "immutable=1"
    with _readable(database):
        connection = connect(f"{database.absolute().as_uri()}?{mode}", uri=True, timeout=LOCKED_SECONDS)
    with closing(connection):
        connection.row_factory = sqlite3.Row
        yield AgentBusStore(database, connection)


@contextmanager
def _readable(database: Path) -> Iterator[None]:
    """Turn errors of reading into INVALID_ARGUMENT."""
    try:
        yield
    except sqlite3.Error as error:
        raise argument(f"Nothing was imported: {why_unreadable(error, database, 'Agent Bus')}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise argument(f"Nothing was imported: {field} of a topic cannot be taken ({first['type']}).") from None
    except (ValueError, TypeError, OverflowError, OSError):  # invalid times and JSON
        raise argument("Nothing was imported: the database holds a time or metadata that cannot be read.") from None


def _log(database: Path) -> Path:
    return database.with_name(database.name + "-wal")


def _state(database: Path) -> tuple[int, int] | None:
    """Return what changes with a database that has no log; with one, a transaction reads a single state."""
    if _log(database).exists():
        return None
    found = database.stat()
    return found.st_mtime_ns, found.st_size


def _check_version(store: sqlite3.Connection) -> None:
    row = store.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    version = int(row[0]) if row is not None and str(row[0]).isdecimal() else 0
    if version > SCHEMA_VERSION:
        raise argument(
            f"Nothing was imported: the database is of a newer Agent Bus (schema {version}) than this Nexus knows "
            f"({SCHEMA_VERSION}). Update Nexus, then try again."
        )
    if version < SCHEMA_VERSION:
        raise argument(
            f"Nothing was imported: the database is not of schema {SCHEMA_VERSION}, which Agent Bus 0.5 has. Start "
            "that once on it, then try again."
        )


def _topic(store: sqlite3.Connection, row: sqlite3.Row) -> BusTopic:
    """Return a topic without its messages."""
    of = {"topic": row["topic_id"]}
    given_out = store.execute("SELECT next_seq - 1 FROM topic_seq WHERE topic_id = :topic", of).fetchone()
    highest, last = store.execute(
        "SELECT max(seq), max(created_at) FROM messages WHERE topic_id = :topic", of
    ).fetchone()
    return BusTopic.model_validate(
        {
            "topic_id": row["topic_id"],
            "name": row["name"],
            "status": row["status"],
            "metadata": _object(row["metadata_json"]),
            "last_seq": max(given_out[0] if given_out else 0, highest or 0),
            "created_at": _moment(row["created_at"]),
            "last_message_at": _moment(last),
            "closed_at": _moment(row["closed_at"]),
            "close_reason": row["close_reason"],
            "peers": [_peer(each) for each in store.execute(PEERS, of)],
        }
    )


def _message(row: sqlite3.Row) -> dict[str, Any]:
    same = ("message_id", "seq", "sender", "message_type", "reply_to", "content_markdown", "client_message_id")
    return {
        **{name: row[name] for name in same},
        "metadata": _object(row["metadata_json"]),
        "created_at": _moment(row["created_at"]),
    }


def _peer(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "agent_name": row["agent_name"],
        "token_hash": digest(row["reclaim_token"]) if row["reclaim_token"] else None,
        "last_seq": row["last_seq"],
        "created_at": _moment(row["created_at"]),
        "claimed_at": _moment(row["last_claimed_at"]),
        "synced_at": _moment(row["updated_at"]),
    }


def _object(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def restore(
    store: AgentBusStore,
    *,
    operator: str,
    progress: Callable[[int, int], None] = lambda checked, stored: None,
) -> ChangeCounts:
    """Store the topics of a database; return how many rows of them were not here yet. What cannot be stored is refused
    before anything is written.

    Messages are written in many short transactions, so that others write in between. A second call goes on where one
    was killed. `progress` is called with the numbers of messages that were checked and stored so far.

    Raises INVALID_ARGUMENT for topics that are here already, or a message of another topic, and for an inconsistent
    database.
    """
    checked, missing = 0, []
    for topic in store.topics:
        found, is_missing = _check(topic, store.messages_of(topic), lambda found: progress(checked + found, 0))  # noqa: B023  # called at once
        checked += found
        missing += [topic] * is_missing
    if store.topics and not missing:
        first = store.topics[0]
        raise argument(f"Nothing was imported: the topic {first.topic_id} ({first.name!r}) is here already.")
    stored = ChangeCounts(0, 0, 0)
    try:
        for topic in missing:
            with write():
                made, peers = _begin(topic)
            stored = stored._replace(topics=stored.topics + made, peers=stored.peers + peers)
            for part in store.messages_of(topic):
                here = _here(part)
                rows = [
                    TopicMessage(topic_id=topic.topic_id, **dict(row)) for row in part if row.message_id not in here
                ]
                if rows:
                    with write():
                        TopicMessage.objects.bulk_create(rows)
                    stored = stored._replace(messages=stored.messages + len(rows))
                    progress(checked, stored.messages)
    except IntegrityError:
        raise argument("The import stopped: somebody else stores the same. Run it again when that has ended.") from None
    with write():
        audit.record(operator, "topic.imported", now(), **stored._asdict())
    return stored


def _check(topic: BusTopic, messages: Iterator[list[BusMessage]], progress: Callable[[int], None]) -> tuple[int, bool]:
    """Return how many messages a topic has, and whether any of it is not here. Raises INVALID_ARGUMENT."""
    if (topic.status == "closed") is (topic.closed_at is None):
        raise argument(f"Nothing was imported: {topic.name!r} is {topic.status} at odds with its closed_at.")
    highest = found = known = 0
    for part in messages:
        for message in part:
            if message.seq <= highest:
                raise argument(TWICE)
            highest = message.seq
        for message_id, topic_id in _here(part).items():
            if topic_id != topic.topic_id:
                raise argument(f"Nothing was imported: the message {message_id} is in this store already.")
            known += 1
        found += len(part)
        progress(found)
    if max([highest, *(peer.last_seq for peer in topic.peers)]) > topic.last_seq:
        raise argument(f"Nothing was imported: {topic.name!r} has numbers or cursors beyond its last_seq.")
    if not Topic.objects.filter(pk=topic.topic_id).exists():
        return found, True
    if known < found and TopicMessage.objects.filter(topic_id=topic.topic_id).count() > known:
        raise argument(
            f"Nothing was imported: the topic {topic.topic_id} ({topic.name!r}) is here already, with other messages."
        )
    return found, known < found


def _here(messages: Sequence[BusMessage]) -> dict[str, str]:
    """Return the topics of those messages that are in the store, by message."""
    ids = [message.message_id for message in messages]
    return dict(TopicMessage.objects.filter(message_id__in=ids).values_list("message_id", "topic_id"))


def _begin(topic: BusTopic) -> tuple[int, int]:
    """Store a topic and its peers unless they are here; return how many of each were stored."""
    own = {name: value for name, value in topic if name != "peers"}
    _, made = Topic.objects.get_or_create(topic_id=own.pop("topic_id"), defaults=own)
    if made:
        peers = (Peer(topic_id=topic.topic_id, **dict(peer)) for peer in topic.peers)
        Peer.objects.bulk_create(peers, batch_size=AT_ONCE)
    return int(made), len(topic.peers) if made else 0
