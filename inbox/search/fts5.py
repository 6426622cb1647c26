"""The full-text index on SQLite, and the translation of a query into FTS5's syntax."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import connection

from nexus.core.fulltext import may_go_on

NEWEST = """
    SELECT i.rowid, d.message_id FROM search_index i LEFT JOIN message_documents d ON d.document = i.rowid
    WHERE search_index MATCH %s {before} ORDER BY i.rowid DESC LIMIT %s
"""
TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'search\\_%%' ESCAPE '\\'"


def match(words: Sequence[str], *, whole: bool = False) -> str:
    """Return the FTS5 query for words. Each is quoted, so that none is an operator; a prefix where it may go on."""
    return " ".join(f'"{word}"' if whole or not may_go_on(word) else f'"{word}"*' for word in words)


def newest(words: Sequence[str], *, limit: int, before: int | None) -> list[tuple[int, str | None]]:
    with connection.cursor() as cursor:
        sql = NEWEST.format(before="" if before is None else "AND i.rowid < %s")
        cursor.execute(sql, [match(words), *([] if before is None else [before]), limit])
        return list(cursor.fetchall())


def every(words: Sequence[str]) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT rowid FROM search_index WHERE search_index MATCH %s ORDER BY rowid", [match(words)])
        return [row[0] for row in cursor.fetchall()]


@contextmanager
def emptied() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(TRIGGERS, [])
        triggers = cursor.fetchall()
        for name, _ in triggers:
            cursor.execute(f"DROP TRIGGER {name}")
        yield
        cursor.execute("INSERT INTO search_index(search_index) VALUES ('delete-all')")
        cursor.execute("DELETE FROM message_documents")
        for _, sql in triggers:
            cursor.execute(sql)
