"""Full-text search over the titles, payloads and results of handoffs. Triggers keep the index current.

The index reads the rows themselves and stores no text. Words are split as in the search of messages.
"""

from __future__ import annotations

from django.db import connection

from nexus.core.fulltext import fts5_query, tsquery, words_of

SQLITE = "SELECT rowid FROM handoff_search WHERE handoff_search MATCH %s ORDER BY rowid DESC LIMIT %s"
POSTGRESQL = "SELECT document FROM handoff_search WHERE words @@ %s::tsquery ORDER BY document DESC LIMIT %s"
REBUILD = "INSERT INTO handoff_search(handoff_search) VALUES ('rebuild')"  # on SQLite


def holding(text: str, limit: int) -> list[int]:
    """Return the `created_event_id`s of the newest handoffs with every word of `text`; a word matches from its
    beginning."""
    words = words_of(text)
    if not words:
        return []
    if connection.vendor == "postgresql":
        wanted = tsquery(words)
        return [] if wanted is None else _newest(POSTGRESQL, wanted.text, limit)
    return _newest(SQLITE, fts5_query(words), limit)


def _newest(statement: str, wanted: str, limit: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [wanted, limit])
        return [row[0] for row in cursor.fetchall()]
