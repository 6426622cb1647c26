"""The full-text index of topics' messages, on each database. Triggers keep it current."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Protocol

from django.db import connection

from nexus.core.fulltext import fts5_query, tsquery

REBUILD_FTS5 = "INSERT INTO topic_search(topic_search) VALUES ('rebuild')"
# FTS5's own bm25 reads every message that has one of the words: a common word would cost as much as the index is large.
CANDIDATES_FTS5 = """
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
    """The full-text index of one database. Its `words` are as `words_of` gives them."""

    def candidates(
        self, words: Sequence[str], *, whole: bool, topic_id: str | None, limit: int
    ) -> list[tuple[int, int, int]]:
        """The newest documents of a topic or of all that hold every word, `whole`, or where it `may_go_on` from its
        beginning."""

    def rebuild(self) -> None:
        """Make the index anew from the messages."""


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
        return own.execute(CANDIDATES_FTS5.replace("%s", "?"), [wanted, limit]).fetchall()


def _within(topic_id: str | None, words: str) -> str:
    wanted = f"content_markdown : ({words})"
    if topic_id is None:
        return wanted
    quoted = topic_id.replace('"', '""')
    return f'topic_id : "{quoted}" AND {wanted}'
