"""The full-text index of topics' messages, for each database. Triggers keep it current."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from django.db import connection

from nexus.core.fulltext import fts5_query, tsquery

REBUILD_FTS5 = "INSERT INTO topic_search(topic_search) VALUES ('rebuild')"
# FTS5's own bm25 reads every message with one of the words: for a common word the cost grows with the index.
CANDIDATES_FTS5 = """
    SELECT rowid, length(content_markdown), length(highlight(topic_search, 1, '.', '')) - length(content_markdown)
    FROM topic_search WHERE topic_search MATCH %s ORDER BY rowid DESC LIMIT %s
"""
MESSAGES = "SELECT document, content_markdown FROM topic_messages WHERE topic_id = %s ORDER BY seq DESC LIMIT %s"
# Like the index of all topics, for the messages of one.
OF_ONE_TOPIC = """
    CREATE VIRTUAL TABLE topic_search USING fts5(
        topic_id UNINDEXED, content_markdown, tokenize='unicode61 remove_diacritics 2'
    )
"""
FEW, SHORT = 500, 200_000  # up to so many messages and characters of a topic, they are indexed for the search alone
CANDIDATES_TSVECTOR = """
    SELECT s.document, length(m.content_markdown), (
        SELECT coalesce(sum(cardinality(positions)), 0)::int FROM unnest(s.words)
        WHERE lexeme = ANY(%s::text[]) OR lexeme ^@ ANY(%s::text[])
    )
    FROM topic_search s JOIN topic_messages m USING (document)
    WHERE s.words @@ %s::tsquery {within} ORDER BY s.document DESC LIMIT %s
"""
REBUILD_TSVECTOR = """
    DELETE FROM topic_search;
    INSERT INTO topic_search (document, words) SELECT document, nexus_words(content_markdown) FROM topic_messages
"""


class Index(Protocol):
    """The full-text index of one database. Its `words` are those of `words_of`."""

    def candidates(
        self, words: Sequence[str], *, whole: bool, topic_id: str | None, limit: int
    ) -> list[tuple[int, int, int]]:
        """Return the newest documents of a topic or of all that contain every word, `whole`, or as a prefix where it
        `may_go_on`."""

    def rebuild(self) -> None:
        """Rebuild the index from the messages."""


class Fts5:
    """The index on SQLite."""

    def candidates(
        self, words: Sequence[str], *, whole: bool, topic_id: str | None, limit: int
    ) -> list[tuple[int, int, int]]:
        if not whole and topic_id is not None and (messages := _few(topic_id)) is not None:
            return _among(messages, fts5_query(words), limit)
        with connection.cursor() as cursor:
            cursor.execute(CANDIDATES_FTS5, [_within(topic_id, fts5_query(words, whole=whole)), limit])
            return list(cursor.fetchall())

    def rebuild(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(REBUILD_FTS5)


class Tsvector:
    """The index on PostgreSQL."""

    def candidates(
        self, words: Sequence[str], *, whole: bool, topic_id: str | None, limit: int
    ) -> list[tuple[int, int, int]]:
        wanted = tsquery(words, whole=whole)
        if wanted is None:
            return []
        sql = CANDIDATES_TSVECTOR.format(within="" if topic_id is None else "AND m.topic_id = %s")
        with connection.cursor() as cursor:
            of_topic = [] if topic_id is None else [topic_id]
            cursor.execute(sql, [wanted.wholes, wanted.prefixes, wanted.text, *of_topic, limit])
            return list(cursor.fetchall())

    def rebuild(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(REBUILD_TSVECTOR)


def index_of_words() -> Index:
    """Return the index of this process's database."""
    return Tsvector() if connection.vendor == "postgresql" else Fts5()


def _few(topic_id: str) -> list[tuple[int, str]] | None:
    """Return the documents and texts of a topic's messages; None where they are too many or too long."""
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
    """Return the candidates among these messages only.

    For a prefix, FTS5 collects the matching messages of all topics; an index of a few messages is built faster.
    """
    with closing(sqlite3.connect(":memory:")) as own:
        own.execute(OF_ONE_TOPIC)
        own.executemany("INSERT INTO topic_search(rowid, content_markdown) VALUES (?, ?)", messages)
        return own.execute(CANDIDATES_FTS5.replace("%s", "?"), [wanted, limit]).fetchall()


def _within(topic_id: str | None, words: str) -> str:
    wanted = f"content_markdown : ({words})"
    if topic_id is None:
        return wanted
    quoted = topic_id.replace('"', '""')
    return f'topic_id : "{quoted}" AND {wanted}'
