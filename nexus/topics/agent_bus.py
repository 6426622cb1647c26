"""Import from a database of Agent Bus: topics, messages, cursors, and reservations with their tokens."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nexus.core.database.sqlite.errors import why_unreadable
from nexus.core.sqlite import connect
from nexus.topics.archive import ArchivedTopic
from nexus.topics.services import digest
from nexus.topics.toolset import argument

SCHEMA_VERSION = 6  # of Agent Bus 0.5
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


def read(database: Path) -> list[ArchivedTopic]:
    """Return every topic of a database, in one state, whatever its owner writes meanwhile. Raises INVALID_ARGUMENT,
    with what to do, for one that cannot be read, or is not of schema 6."""
    # it may have a write-ahead log
    mode = "mode=ro" if database.with_name(database.name + "-wal").exists() else "immutable=1"
    try:
        with closing(connect(f"{database.absolute().as_uri()}?{mode}", uri=True)) as store:
            store.row_factory = sqlite3.Row
            store.execute("BEGIN")
            _check_version(store)
            return [_topic(store, row) for row in store.execute("SELECT * FROM topics ORDER BY created_at")]
    except sqlite3.Error as error:
        raise argument(f"Nothing was imported: {why_unreadable(error, database, 'Agent Bus')}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise argument(f"Nothing was imported: {field} of a topic cannot be taken ({first['type']}).") from None
    except (ValueError, TypeError, OverflowError, OSError):  # invalid times and JSON
        raise argument("Nothing was imported: the database holds a time or metadata that cannot be read.") from None


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
    of = {"topic": row["topic_id"]}
    messages = [_message(each) for each in store.execute(MESSAGES, of)]
    given_out = store.execute("SELECT next_seq - 1 FROM topic_seq WHERE topic_id = :topic", of).fetchone()
    highest = max((message["seq"] for message in messages), default=0)
    return ArchivedTopic.model_validate(
        {
            "topic_id": row["topic_id"],
            "name": row["name"],
            "status": row["status"],
            "metadata": _object(row["metadata_json"]),
            "last_seq": max(given_out[0] if given_out else 0, highest),
            "created_at": _moment(row["created_at"]),
            "last_message_at": max((message["created_at"] for message in messages), default=None),
            "closed_at": _moment(row["closed_at"]),
            "close_reason": row["close_reason"],
            "peers": [_peer(each) for each in store.execute(PEERS, of)],
            "messages": messages,
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
