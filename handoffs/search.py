"""Full-text search over handoffs: their titles, payloads and results. Triggers keep the index.

The index reads the handoffs themselves and keeps no text. Words are as the search of messages has them.
"""

from __future__ import annotations

from django.db import connection

from inbox.search.fts5 import match
from inbox.search.tsvector import query
from nexus.core.fulltext import words_of

SQLITE = "SELECT rowid FROM handoff_search WHERE handoff_search MATCH %s ORDER BY rowid DESC LIMIT %s"
POSTGRESQL = "SELECT document FROM handoff_search WHERE words @@ %s::tsquery ORDER BY document DESC LIMIT %s"
REBUILD = "INSERT INTO handoff_search(handoff_search) VALUES ('rebuild')"  # on SQLite


def holding(text: str, limit: int) -> list[int]:
    """The `created_event_id`s of the newest handoffs that hold every word of `text`, each from its beginning."""
    words = words_of(text)
    if not words:
        return []
    if connection.vendor == "postgresql":
        wanted = query(words)
        return [] if wanted is None else _newest(POSTGRESQL, wanted.text, limit)
    return _newest(SQLITE, match(words), limit)


def _newest(statement: str, wanted: str, limit: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [wanted, limit])
        return [row[0] for row in cursor.fetchall()]
