"""Search over the messages of topics: the one module that speaks FTS5 (the index is kept by triggers).

A search by meaning joins in `find`; without it `hybrid` finds what full text does, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import connection

from core.database import write
from inbox.search import match
from topics.errors import argument
from topics.models import TopicMessage

HIT_STARTS, HIT_ENDS = "\ue000", "\ue001"
SNIPPET_TOKENS = 24
REBUILD = "INSERT INTO topic_search(topic_search) VALUES ('rebuild')"
MORE = "Search by meaning is not installed here: pip install 'nexus-hub[semantic]' adds it."
SEARCH = """
    SELECT s.rowid, bm25(topic_search, 0.0, 1.0) AS rank, snippet(topic_search, 1, %s, %s, '…', %s)
    FROM topic_search s WHERE topic_search MATCH %s ORDER BY rank LIMIT %s
"""


@dataclass(frozen=True)
class Hit:
    """A message that was found; of two ranks the lower is the better one."""

    message: TopicMessage
    snippet: str
    rank: float


@dataclass(frozen=True)
class Found:
    """What a search found, best first, and what it has to say of itself."""

    hits: list[Hit]
    warning: str | None = None


def find(query: str, *, topic_id: str | None, mode: str, limit: int) -> Found:
    """The messages that hold every word of `query`, each from its beginning; any text is a valid query.

    Raises INVALID_ARGUMENT for the mode `semantic` where that cannot be had.
    """
    if mode == "semantic":
        raise argument(f"mode: {MORE} Use hybrid or fts meanwhile.")
    hits = _full_text(query, topic_id, limit)
    return Found(hits, f"{MORE} These are the results of full text." if mode == "hybrid" else None)


def _full_text(query: str, topic_id: str | None, limit: int) -> list[Hit]:
    words = match(query)
    if not words:
        return []
    wanted = f"content_markdown : ({words})"
    if topic_id is not None:
        quoted = topic_id.replace('"', '""')
        wanted = f'topic_id : "{quoted}" AND {wanted}'
    with connection.cursor() as cursor:
        cursor.execute(SEARCH, [HIT_STARTS, HIT_ENDS, SNIPPET_TOKENS, wanted, limit])
        rows: list[tuple[int, float, str]] = cursor.fetchall()
    messages = TopicMessage.objects.select_related("topic").in_bulk([document for document, *_ in rows])
    return [Hit(messages[document], snippet, rank) for document, rank, snippet in rows if document in messages]


def rebuild() -> int:
    """Make the index anew from the messages; how many there are."""
    with write(), connection.cursor() as cursor:
        cursor.execute(REBUILD)
        return TopicMessage.objects.count()
