"""Full-text search over messages and events: the one module that speaks FTS5 (the index is kept by triggers)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from coordination.models import Event
from inbox.models import Message

MAX_WORDS, MAX_WORD = 12, 64
EXCERPT = 160  # characters around the first hit
NEWEST = """
    SELECT i.rowid, d.message_id FROM search_index i LEFT JOIN message_documents d ON d.document = i.rowid
    WHERE search_index MATCH %s {before} ORDER BY i.rowid DESC LIMIT %s
"""


@dataclass(frozen=True)
class Hit:
    """A message or an event that was found; `document` is where the next page starts."""

    document: int
    kind: str  # message, event
    identifier: str
    title: str
    excerpt: str
    created_at: datetime


def search(text: str, *, limit: int = 50, before: int | None = None) -> list[Hit]:
    """What holds every word of `text`, newest first; a word matches from its beginning. Any text is a valid query."""
    query = match(text)
    if not query:
        return []
    with connection.cursor() as cursor:
        sql = NEWEST.format(before="" if before is None else "AND i.rowid < %s")
        cursor.execute(sql, [query, *([] if before is None else [before]), limit])
        rows: list[tuple[int, str | None]] = cursor.fetchall()
    messages = Message.objects.in_bulk([message_id for _, message_id in rows if message_id])
    events = Event.objects.in_bulk([document for document, message_id in rows if message_id is None])
    words = [word.lower() for word in _words(text)]
    hits = []
    for document, message_id in rows:
        if message_id is not None and (message := messages.get(message_id)):
            text_found = f"{message.from_agent_id}: {message.body}"
            hits.append(
                Hit(document, "message", message_id, message.subject, _around(text_found, words), message.created_at)
            )
        elif event := events.get(document):
            found = f"{event.actor_agent_id or ''} {json.dumps(event.payload, ensure_ascii=False)}".strip()
            hits.append(Hit(document, "event", str(document), event.type, _around(found, words), event.created_at))
    return hits


def event_ids(text: str) -> list[int]:
    """The ids of all events (a message counts as its event) that hold every word of `text`, oldest first."""
    query = match(text)
    if not query:
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT rowid FROM search_index WHERE search_index MATCH %s ORDER BY rowid", [query])
        return [row[0] for row in cursor.fetchall()]


def document_of(message_id: str) -> int | None:
    """The document of a message: where a search for older ones starts."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT document FROM message_documents WHERE message_id = %s", [message_id])
        row = cursor.fetchone()
    return row[0] if row else None


def match(text: str, *, whole: bool = False) -> str:
    """The FTS5 query for a person's words: every word quoted, so that none is an operator; each whole, or a prefix."""
    return " ".join(f'"{word}"' if whole else f'"{word}"*' for word in _words(text))


def _words(text: str) -> list[str]:
    """Runs of what is neither blank, quote, control character nor punctuation alone."""
    runs = re.split(r'[\s"\x00-\x1f\x7f]+', text[:1000])
    return [run[:MAX_WORD] for run in runs if re.search(r"\w", run.replace("_", ""))][:MAX_WORDS]


def _around(text: str, words: list[str]) -> str:
    low = text.lower()
    places = [place for word in words if (place := low.find(word)) >= 0]
    start = max(0, min(places, default=0) - EXCERPT // 3)
    cut = text[start : start + EXCERPT]
    return f"{'…' if start else ''}{cut}{'…' if start + EXCERPT < len(text) else ''}"


@contextmanager
def emptied() -> Iterator[None]:
    """Inside, deleting every message and event is not followed row by row: the index is emptied at once after it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'search\\_%%' ESCAPE '\\'", []
        )
        triggers = cursor.fetchall()
        for name, _ in triggers:
            cursor.execute(f"DROP TRIGGER {name}")
        yield
        cursor.execute("INSERT INTO search_index(search_index) VALUES ('delete-all')")
        cursor.execute("DELETE FROM message_documents")
        for _, sql in triggers:
            cursor.execute(sql)
