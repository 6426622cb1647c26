"""The full-text index of handoffs on SQLite. It reads the handoffs themselves, and keeps no text."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from inbox.search.fts5 import match

NEWEST = "SELECT rowid FROM handoff_search WHERE handoff_search MATCH %s ORDER BY rowid DESC LIMIT %s"
REBUILD = "INSERT INTO handoff_search(handoff_search) VALUES ('rebuild')"


def newest(words: Sequence[str], limit: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(NEWEST, [match(words), limit])
        return [row[0] for row in cursor.fetchall()]
