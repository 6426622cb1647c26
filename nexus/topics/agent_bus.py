"""Import from a database of Agent Bus: topics, messages, cursors, and reservations with their tokens."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nexus.core.database.sqlite.errors import why_unreadable
from nexus.core.sqlite import connect
from nexus.topics.archive import AT_ONCE, TWICE, ArchivedMessage, ArchivedTopic
from nexus.topics.services import digest
from nexus.topics.toolset import argument

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

    def messages_of(self, topic: ArchivedTopic) -> Iterator[list[ArchivedMessage]]:
        """Yield the messages of a topic, some hundred at once, oldest first."""
        with _readable(self._database):
            cursor = self._connection.execute(MESSAGES, {"topic": topic.topic_id})
        while True:
            with _readable(self._database):
                part = [ArchivedMessage.model_validate(_message(row)) for row in cursor.fetchmany(AT_ONCE)]
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


def _topic(store: sqlite3.Connection, row: sqlite3.Row) -> ArchivedTopic:
    """Return a topic without its messages."""
    of = {"topic": row["topic_id"]}
    given_out = store.execute("SELECT next_seq - 1 FROM topic_seq WHERE topic_id = :topic", of).fetchone()
    highest, last = store.execute(
        "SELECT max(seq), max(created_at) FROM messages WHERE topic_id = :topic", of
    ).fetchone()
    return ArchivedTopic.model_validate(
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
            "messages": [],
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
