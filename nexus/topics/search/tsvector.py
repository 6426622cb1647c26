"""The full-text index of topics on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from inbox.search.tsvector import query

CANDIDATES = """
    SELECT s.document, length(m.content_markdown), (
        SELECT coalesce(sum(cardinality(positions)), 0)::int FROM unnest(s.words)
        WHERE lexeme = ANY(%s::text[]) OR lexeme ^@ ANY(%s::text[])
    )
    FROM topic_search s JOIN topic_messages m USING (document)
    WHERE s.words @@ %s::tsquery {within} ORDER BY s.document DESC LIMIT %s
"""
REBUILD = """
    DELETE FROM topic_search;
    INSERT INTO topic_search (document, words) SELECT document, nexus_words(content_markdown) FROM topic_messages
"""


def candidates(words: Sequence[str], *, whole: bool, topic_id: str | None, limit: int) -> list[tuple[int, int, int]]:
    wanted = query(words, whole=whole)
    if wanted is None:
        return []
    sql = CANDIDATES.format(within="" if topic_id is None else "AND m.topic_id = %s")
    with connection.cursor() as cursor:
        of_topic = [] if topic_id is None else [topic_id]
        cursor.execute(sql, [wanted.wholes, wanted.prefixes, wanted.text, *of_topic, limit])
        return list(cursor.fetchall())


def rebuild() -> None:
    with connection.cursor() as cursor:
        cursor.execute(REBUILD)
