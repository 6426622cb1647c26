"""Search over the messages of topics: the one module that speaks FTS5 (the index is kept by triggers).

A search by meaning joins in `find`; without it `hybrid` finds what full text does, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
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
RANKED = 200  # of more hits the newest so many are ranked
# FTS5's own bm25 reads every message that has one of the words: a common word would cost as much as the index is large.
CANDIDATES = """
    SELECT rowid, length(content_markdown), length(highlight(topic_search, 1, '.', '')) - length(content_markdown)
    FROM topic_search WHERE topic_search MATCH %s ORDER BY rowid DESC LIMIT %s
"""
# One pass over the candidates: a plain `rowid IN` would be a search for each.
SNIPPETS = """
    SELECT rowid, snippet(topic_search, 1, %s, %s, '…', %s) FROM topic_search
    WHERE topic_search MATCH %s AND rowid BETWEEN %s AND %s AND +rowid IN ({})
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
    if not match(query):
        return []
    enough = max(RANKED, limit)
    with connection.cursor() as cursor:
        # Whole words first: for beginnings FTS5 gathers every message that has one, however few are wanted.
        for words in (match(query, whole=True), match(query)):
            wanted = _within(topic_id, words)
            cursor.execute(CANDIDATES, [wanted, enough])
            candidates = cursor.fetchall()
            if len(candidates) == enough:
                break
        ranks = _ranks(candidates)
        best = sorted(ranks, key=lambda document: (ranks[document], -document))[:limit]
        span = [min(best, default=0), max(best, default=0)]
        marks = ", ".join(["%s"] * len(best))
        cursor.execute(SNIPPETS.format(marks), [HIT_STARTS, HIT_ENDS, SNIPPET_TOKENS, wanted, *span, *best])
        snippets = dict(cursor.fetchall())
    messages = TopicMessage.objects.select_related("topic").in_bulk(best)
    return [
        Hit(messages[document], snippets[document], ranks[document])
        for document in best
        if document in messages and document in snippets  # deleted meanwhile
    ]


def _within(topic_id: str | None, words: str) -> str:
    wanted = f"content_markdown : ({words})"
    if topic_id is None:
        return wanted
    quoted = topic_id.replace('"', '""')
    return f'topic_id : "{quoted}" AND {wanted}'


def _ranks(candidates: Sequence[tuple[int, int, int]]) -> dict[int, float]:
    """The rank of each document, from its length and its number of hits: BM25's saturation, without word weights.

    Every candidate holds every word, so that how rare a word is tells little.
    """
    average = sum(length for _, length, _ in candidates) / max(len(candidates), 1)
    return {
        document: -hits / (hits + 1.2 * (0.25 + 0.75 * length / max(average, 1)))
        for document, length, hits in candidates
    }


def rebuild() -> int:
    """Make the index anew from the messages; how many there are."""
    with write(), connection.cursor() as cursor:
        cursor.execute(REBUILD)
        return TopicMessage.objects.count()
