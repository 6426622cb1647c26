"""Search over the messages of topics, by words and by meaning.

Where there is no search by meaning, `hybrid` finds what full text does, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nexus.core.database.store import write
from nexus.core.fulltext import words_of
from nexus.topics.config import TopicSettings
from nexus.topics.embedding import index, source
from nexus.topics.errors import Unavailable, argument
from nexus.topics.full_text import index_of_words
from nexus.topics.models import TopicMessage
from nexus.topics.snippets import opening, snippet

CANDIDATES_EACH = 50  # of either search, from which hybrid takes the best
FUSION = 60  # reciprocal rank fusion's customary constant: how little the first places count above the next
RANKED = 200  # of more hits the newest so many are ranked


class Candidate(NamedTuple):
    """A document that may be among the best: its length in characters, and how many hits are in it."""

    document: int
    length: int
    hits: int


@dataclass(frozen=True)
class Hit:
    """A message that was found, by its words, its meaning or both."""

    message: TopicMessage
    snippet: str
    rank: float | None = None  # of its words, the lower the better
    score: float | None = None  # the cosine between its meaning and the query's, the higher the better


@dataclass(frozen=True)
class Found:
    """What a search found, best first, and what it has to say of itself."""

    hits: list[Hit]
    warnings: Mapping[str, str] = field(default_factory=dict)  # by code


def find(query: str, *, topic_id: str | None, mode: str, limit: int, model: str | None = None) -> Found:
    """In the mode `fts` the messages that hold every word of `query`, one of three letters or more from its beginning;
    any text is a valid query. In `semantic` those that are nearest to its meaning, however far that is, and in `hybrid`
    the best of both.

    Raises INVALID_ARGUMENT for the mode `semantic` where that cannot be had.
    """
    if mode == "fts":
        return Found(_full_text(query, topic_id, limit))
    try:
        meant, warnings = _semantic(query, topic_id, max(limit, CANDIDATES_EACH), model)
    except Unavailable as why:
        if mode == "semantic":
            raise argument(f"mode: {why} Use hybrid or fts meanwhile.") from None
        warning = f"{why} These are the results of full text."
        return Found(_full_text(query, topic_id, limit), {"SEMANTIC_UNAVAILABLE": warning})
    worded = _full_text(query, topic_id, max(limit, CANDIDATES_EACH)) if mode == "hybrid" else []
    return Found(_fused(worded, meant, limit), warnings)


def slow(mode: str) -> bool:
    """Whether such a search may take long: it may load a model, ask one, and compare every vector."""
    return mode != "fts" and source.wanted()


def _semantic(
    query: str, topic_id: str | None, limit: int, model: str | None
) -> tuple[dict[int, float], dict[str, str]]:
    """The documents nearest to a query, nearest first, with their scores; and warnings. Raises Unavailable."""
    if model not in (None, known := TopicSettings.current().embedding_model):
        raise Unavailable(f"model: there is no {model!r} here" + (f", only {known!r}." if known else f". {source.OFF}"))
    embedder, (vector,) = source.embed([query])
    from nexus.topics.embedding.vectors import COMPARED, nearest

    found, more = nearest(vector, identity=embedder.identity, topic_id=topic_id, limit=limit)
    warnings = {}
    if more:
        warnings["SEMANTIC_NEWEST"] = (
            f"By meaning the newest {COMPARED} messages were searched; words, or a topic_id, reach further back."
        )
    if index.pending(embedder.identity, 1):
        warnings["SEMANTIC_INCOMPLETE"] = (
            "Some messages are not indexed by meaning yet; a server does it in the background, and `nexus topics "
            "reindex` does it now."
        )
    return found, warnings


def _fused(worded: Sequence[Hit], meant: Mapping[int, float], limit: int) -> list[Hit]:
    """The best of two lists that are best first: what is far up in either, and above all in both."""
    by_words = {hit.message.document: hit for hit in worded}
    points: dict[int, float] = {}
    for ranked in (by_words, meant):
        for place, document in enumerate(ranked):
            points[document] = points.get(document, 0) + 1 / (FUSION + place)
    best = sorted(points, key=lambda document: -points[document])[:limit]
    by_meaning = _by_meaning(document for document in best if document not in by_words)
    hits = {**by_words, **by_meaning}
    return [replace(hits[document], score=meant.get(document)) for document in best if document in hits]


def _by_meaning(documents: Iterable[int]) -> dict[int, Hit]:
    messages = TopicMessage.objects.select_related("topic").in_bulk(documents)
    return {document: Hit(message, opening(message.content_markdown)) for document, message in messages.items()}


def _full_text(query: str, topic_id: str | None, limit: int) -> list[Hit]:
    words = words_of(query)
    if not words:
        return []
    enough = max(RANKED, limit)
    candidates: list[Candidate] = []
    # Whole words first: for beginnings FTS5 gathers every message that has one, however few are wanted.
    for whole in (True, False):
        found = index_of_words().candidates(words, whole=whole, topic_id=topic_id, limit=enough)
        candidates = [Candidate(*row) for row in found]
        if len(candidates) == enough:
            break
    ranks = _ranks(candidates)
    best = sorted(ranks, key=lambda document: (ranks[document], -document))[:limit]
    messages = TopicMessage.objects.select_related("topic").in_bulk(best)
    return [
        Hit(messages[document], snippet(messages[document].content_markdown, words), ranks[document])
        for document in best
        if document in messages  # else deleted meanwhile
    ]


def _ranks(candidates: Sequence[Candidate]) -> dict[int, float]:
    """The rank of each document, from its length and its number of hits: BM25's saturation, without word weights.

    Every candidate holds every word, so that how rare a word is tells little.
    """
    average = sum(length for _, length, _ in candidates) / max(len(candidates), 1)
    return {
        document: -hits / (hits + 1.2 * (0.25 + 0.75 * length / max(average, 1)))
        for document, length, hits in candidates
    }


def rebuild() -> int:
    """Make the index of words anew from the messages; how many there are."""
    with write():
        index_of_words().rebuild()
        return TopicMessage.objects.count()
