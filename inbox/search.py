"""Full-text search over messages and events: one index for each database. Triggers keep the index current.

Words are runs of letters and digits, without regard to case and accents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from coordination.models import Event
from inbox.models import Message
from nexus.core.fulltext import fts5_query, tsquery, words_of

EXCERPT = 160  # characters around the first hit
NEWEST_FTS5 = """
    SELECT i.rowid, d.message_id FROM search_index i LEFT JOIN message_documents d ON d.document = i.rowid
    WHERE search_index MATCH %s {before} ORDER BY i.rowid DESC LIMIT %s
"""
TRIGGERS_QUERY = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'search\\_%%' ESCAPE '\\'"
NEWEST_TSVECTOR = """
    SELECT i.document, d.message_id FROM search_index i LEFT JOIN message_documents d USING (document)
    WHERE i.words @@ %s::tsquery {before} ORDER BY i.document DESC LIMIT %s
"""


class Fts5:
    """The full-text index on SQLite. Its `words` are those of `words_of`."""

    def newest(self, words: Sequence[str], *, limit: int, before: int | None) -> list[tuple[int, str | None]]:
        """Return the newest documents that contain every word (as a prefix where it `may_go_on`), each with its
        message, if any."""
        with connection.cursor() as cursor:
            sql = NEWEST_FTS5.format(before="" if before is None else "AND i.rowid < %s")
            cursor.execute(sql, [fts5_query(words), *([] if before is None else [before]), limit])
            return list(cursor.fetchall())

    def every(self, words: Sequence[str]) -> list[int]:
        """Return all documents that contain every word, oldest first."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT rowid FROM search_index WHERE search_index MATCH %s ORDER BY rowid", [fts5_query(words)]
            )
            return [row[0] for row in cursor.fetchall()]

    @contextmanager
    def emptied(self) -> Iterator[None]:
        """Empty the index at once around a deletion of all messages and events, instead of row by row."""
        with connection.cursor() as cursor:
            cursor.execute(TRIGGERS_QUERY, [])
            triggers = cursor.fetchall()
            for name, _ in triggers:
                cursor.execute(f"DROP TRIGGER {name}")
            yield
            cursor.execute("INSERT INTO search_index(search_index) VALUES ('delete-all')")
            cursor.execute("DELETE FROM message_documents")
            for _, sql in triggers:
                cursor.execute(sql)


class Tsvector:
    """The same on PostgreSQL."""

    def newest(self, words: Sequence[str], *, limit: int, before: int | None) -> list[tuple[int, str | None]]:
        wanted = tsquery(words)
        if wanted is None:
            return []
        with connection.cursor() as cursor:
            sql = NEWEST_TSVECTOR.format(before="" if before is None else "AND i.document < %s")
            cursor.execute(sql, [wanted.text, *([] if before is None else [before]), limit])
            return list(cursor.fetchall())

    def every(self, words: Sequence[str]) -> list[int]:
        wanted = tsquery(words)
        if wanted is None:
            return []
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT document FROM search_index WHERE words @@ %s::tsquery ORDER BY document", [wanted.text]
            )
            return [row[0] for row in cursor.fetchall()]

    @contextmanager
    def emptied(self) -> Iterator[None]:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM search_index")  # first: the triggers then find nothing that they had to delete
            cursor.execute("DELETE FROM message_documents")
        yield


@dataclass(frozen=True)
class Hit:
    """A message or an event that was found; `document` is where the next page starts."""

    document: int
    kind: str  # message, event
    identifier: str
    title: str
    excerpt: str
    created_at: datetime
    event: Event | None = None  # where it is one


def search(text: str, *, limit: int = 50, before: int | None = None) -> list[Hit]:
    """Return what contains every word of `text`, newest first; a word of three letters or more also matches as a
    prefix. Any text is a valid query."""
    words = words_of(text)
    if not words:
        return []
    rows = _index().newest(words, limit=limit, before=before)
    messages = Message.objects.in_bulk([message_id for _, message_id in rows if message_id])
    events = Event.objects.in_bulk([document for document, message_id in rows if message_id is None])
    lower = [word.lower() for word in words]
    hits = []
    for document, message_id in rows:
        if message_id is not None and (message := messages.get(message_id)):
            text_found = f"{message.from_agent_id}: {message.body}"
            hits.append(
                Hit(document, "message", message_id, message.subject, around(text_found, lower), message.created_at)
            )
        elif event := events.get(document):
            found = f"{event.actor_agent_id or ''} {json.dumps(event.payload, ensure_ascii=False)}".strip()
            hits.append(
                Hit(document, "event", str(document), event.type, around(found, lower), event.created_at, event)
            )
    return hits


def documents(identifier: str, *, limit: int) -> list[int]:
    """Return the newest documents that contain an id, without those of messages."""
    found = _index().newest([identifier], limit=limit, before=None)
    return [document for document, message_id in found if message_id is None]


def event_ids(text: str) -> list[int]:
    """Return the ids of all events (a message counts as its event) that contain every word of `text`, oldest first."""
    words = words_of(text)
    return _index().every(words) if words else []


def document_of(message_id: str) -> int | None:
    """Return the document of a message, where a search for older ones starts."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT document FROM message_documents WHERE message_id = %s", [message_id])
        row = cursor.fetchone()
    return row[0] if row else None


def around(text: str, words: Sequence[str]) -> str:
    """Return the part of a text around the first of these lower-case words."""
    low = text.lower()
    positions = [position for word in words if (position := low.find(word)) >= 0]
    start = max(0, min(positions, default=0) - EXCERPT // 3)
    cut = text[start : start + EXCERPT]
    return f"{'…' if start else ''}{cut}{'…' if start + EXCERPT < len(text) else ''}"


def emptied() -> AbstractContextManager[None]:
    """Empty the index at once around a deletion of all messages and events, instead of row by row."""
    return _index().emptied()


def _index() -> Fts5 | Tsvector:
    return Tsvector() if connection.vendor == "postgresql" else Fts5()
