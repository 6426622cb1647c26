"""The full-text index of topics on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from django.db import connection

from inbox.search.fts5 import match

REBUILD = "INSERT INTO topic_search(topic_search) VALUES ('rebuild')"
# FTS5's own bm25 reads every message that has one of the words: a common word would cost as much as the index is large.
CANDIDATES = """
    SELECT rowid, length(content_markdown), length(highlight(topic_search, 1, '.', '')) - length(content_markdown)
    FROM topic_search WHERE topic_search MATCH %s ORDER BY rowid DESC LIMIT %s
"""
MESSAGES = "SELECT document, content_markdown FROM topic_messages WHERE topic_id = %s ORDER BY seq DESC LIMIT %s"
# As the index of all topics, for the messages of one.
OF_ONE_TOPIC = """
    CREATE VIRTUAL TABLE topic_search USING fts5(
        topic_id UNINDEXED, content_markdown, tokenize='unicode61 remove_diacritics 2'
    )
"""
FEW, SHORT = 500, 200_000  # messages of a topic, and characters in all, that are indexed anew for a search


def candidates(words: Sequence[str], *, whole: bool, topic_id: str | None, limit: int) -> list[tuple[int, int, int]]:
    if not whole and topic_id is not None and (messages := _few(topic_id)) is not None:
        return _among(messages, match(words), limit)
    with connection.cursor() as cursor:
        cursor.execute(CANDIDATES, [_within(topic_id, match(words, whole=whole)), limit])
        return list(cursor.fetchall())


def _few(topic_id: str) -> list[tuple[int, str]] | None:
    """The messages of a topic that has few: documents and texts; None where it has more."""
    messages, length = [], 0
    with connection.cursor() as cursor:
        cursor.execute(MESSAGES, [topic_id, FEW + 1])
        for document, text in cursor:
            messages.append((document, text))
            length += len(text)
            if len(messages) > FEW or length > SHORT:
                return None
    return messages


def _among(messages: Sequence[tuple[int, str]], wanted: str, limit: int) -> list[tuple[int, int, int]]:
    """The candidates among these messages alone.

    For a word's beginning FTS5 gathers the messages of all topics that have one: an index of a few is quicker made.
    """
    with closing(sqlite3.connect(":memory:")) as own:
        own.execute(OF_ONE_TOPIC)
        own.executemany("INSERT INTO topic_search(rowid, content_markdown) VALUES (?, ?)", messages)
        return own.execute(CANDIDATES.replace("%s", "?"), [wanted, limit]).fetchall()


def _within(topic_id: str | None, words: str) -> str:
    wanted = f"content_markdown : ({words})"
    if topic_id is None:
        return wanted
    quoted = topic_id.replace('"', '""')
    return f'topic_id : "{quoted}" AND {wanted}'


def rebuild() -> None:
    with connection.cursor() as cursor:
        cursor.execute(REBUILD)
