"""The full-text index of handoffs on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from inbox.search.tsvector import query

NEWEST = "SELECT document FROM handoff_search WHERE words @@ %s::tsquery ORDER BY document DESC LIMIT %s"


def newest(words: Sequence[str], limit: int) -> list[int]:
    wanted = query(words)
    if wanted is None:
        return []
    with connection.cursor() as cursor:
        cursor.execute(NEWEST, [wanted.text, limit])
        return [row[0] for row in cursor.fetchall()]
