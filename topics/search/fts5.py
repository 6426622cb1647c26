"""The full-text index of topics on SQLite."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from inbox.search.fts5 import match

REBUILD = "INSERT INTO topic_search(topic_search) VALUES ('rebuild')"
# FTS5's own bm25 reads every message that has one of the words: a common word would cost as much as the index is large.
CANDIDATES = """
    SELECT rowid, length(content_markdown), length(highlight(topic_search, 1, '.', '')) - length(content_markdown)
    FROM topic_search WHERE topic_search MATCH %s ORDER BY rowid DESC LIMIT %s
"""


def candidates(words: Sequence[str], *, whole: bool, topic_id: str | None, limit: int) -> list[tuple[int, int, int]]:
    with connection.cursor() as cursor:
        cursor.execute(CANDIDATES, [_within(topic_id, match(words, whole=whole)), limit])
        return list(cursor.fetchall())


def _within(topic_id: str | None, words: str) -> str:
    wanted = f"content_markdown : ({words})"
    if topic_id is None:
        return wanted
    quoted = topic_id.replace('"', '""')
    return f'topic_id : "{quoted}" AND {wanted}'


def rebuild() -> None:
    with connection.cursor() as cursor:
        cursor.execute(REBUILD)
