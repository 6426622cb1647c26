"""A database as Agent Bus 0.5 writes it."""

from __future__ import annotations

from typing import Any

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE topics (topic_id TEXT PRIMARY KEY, name TEXT NOT NULL, created_at REAL NOT NULL, status TEXT NOT NULL,
    closed_at REAL NULL, close_reason TEXT NULL, metadata_json TEXT NULL);
CREATE TABLE topic_seq (topic_id TEXT PRIMARY KEY, next_seq INTEGER NOT NULL, updated_at REAL NOT NULL);
CREATE TABLE messages (message_id TEXT PRIMARY KEY, topic_id TEXT NOT NULL, seq INTEGER NOT NULL, sender TEXT NOT NULL,
    message_type TEXT NOT NULL, reply_to TEXT NULL, content_markdown TEXT NOT NULL, metadata_json TEXT NULL,
    client_message_id TEXT NULL, created_at REAL NOT NULL);
CREATE TABLE cursors (topic_id TEXT NOT NULL, agent_name TEXT NOT NULL, last_seq INTEGER NOT NULL,
    updated_at REAL NOT NULL, PRIMARY KEY (topic_id, agent_name));
CREATE TABLE agent_name_reservations (topic_id TEXT NOT NULL, agent_name TEXT NOT NULL, reclaim_token TEXT NOT NULL,
    created_at REAL NOT NULL, last_claimed_at REAL NOT NULL, PRIMARY KEY (topic_id, agent_name));
"""
AT = 1795263553.894328
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "meta": [("schema_version", "6")],
    "topics": [
        ("aaa", "cache-key", AT, "open", None, None, '{"ticket":12}'),
        ("bbb", "old plan", AT + 1, "closed", AT + 2, "superseded", None),
        ("ccc", "cache-key", AT + 3, "open", None, None, None),
    ],
    "topic_seq": [("aaa", 4, AT + 9), ("bbb", 2, AT)],
    "messages": [
        ("m1", "aaa", 1, "red-squirrel", "question", None, "Which?\n\n- a", '{"file":"x"}', "q1", AT + 4),
        ("m2", "aaa", 2, "blue-heron", "answer", "m1", "日本語", None, None, AT + 5),
        ("m4", "bbb", 1, "blue-heron", "message", "nowhere", "x", None, None, AT + 6),
    ],
    "cursors": [("aaa", "red-squirrel", 2, AT + 7), ("aaa", "old-owl", 1, AT + 8)],
    "agent_name_reservations": [("aaa", "red-squirrel", "d88215a9", AT, AT + 1), ("aaa", "blue-heron", "5cd1", AT, AT)],
}
