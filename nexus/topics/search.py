"""Search over the messages of topics: one full-text index for each database, which triggers keep current.

`find_messages` adds the semantic search; without it `hybrid` returns the full-text results
with a warning. Snippets show the part of a message with most of the words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from django.db import connection

from nexus.core.database.store import write
from nexus.core.fulltext import HIT_ENDS, HIT_STARTS, fts5_query, may_go_on, tsquery, words_of
from nexus.topics.config import TopicSettings
from nexus.topics.embedding import index, source
from nexus.topics.models import TopicMessage
from nexus.topics.toolset import Unavailable, argument

CANDIDATES_EACH = 50  # of each search, from which hybrid takes the best
FUSION = 60  # the usual constant of reciprocal rank fusion; the larger, the less the first ranks stand out
RANKED = 200  # the newest hits that are ranked


class Candidate(NamedTuple):
    """A document that may be among the best: its length in characters, and its number of hits."""

    document: int
    length: int
    hits: int


@dataclass(frozen=True)
class Hit:
    """A message that was found by its words, its meaning or both."""

    message: TopicMessage
    snippet: str
    rank: float | None = None  # by words; lower is better
    score: float | None = None  # the cosine between its meaning and the query's; higher is better


@dataclass(frozen=True)
class SearchResults:
    """The results of a search, best first, with warnings."""

    hits: list[Hit]
    warnings: Mapping[str, str] = field(default_factory=dict)  # by code


def find_messages(
    query: str, *, topic_id: str | None, mode: str, limit: int, model: str | None = None
) -> SearchResults:
    """Find messages. The mode `fts` finds those that contain every word of `query` (a word of three letters or more
    also as a prefix); any text is a valid query. `semantic` finds those nearest in meaning, at any distance;
    `hybrid` finds the best of both.

    Raises INVALID_ARGUMENT for the mode `semantic` where it is not available.
    """
    if mode == "fts":
        return SearchResults(_full_text(query, topic_id, limit))
    try:
        meant, warnings = _semantic(query, topic_id, max(limit, CANDIDATES_EACH), model)
    except Unavailable as why:
        if mode == "semantic":
            raise argument(f"mode: {why} Use hybrid or fts meanwhile.") from None
        warning = f"{why} These are the results of full text."
        return SearchResults(_full_text(query, topic_id, limit), {"SEMANTIC_UNAVAILABLE": warning})
    worded = _full_text(query, topic_id, max(limit, CANDIDATES_EACH)) if mode == "hybrid" else []
    return SearchResults(_fused(worded, meant, limit), warnings)


def slow(mode: str) -> bool:
    """Return whether a search may take long: it may load a model, and compare every vector."""
    return mode != "fts" and source.is_enabled()


def _semantic(
    query: str, topic_id: str | None, limit: int, model: str | None
) -> tuple[dict[int, float], dict[str, str]]:
    """Return the documents nearest to a query with their scores, nearest first; and warnings. Raises Unavailable."""
    if model not in (None, known := TopicSettings.current().embedding_model):
        instead = f", only {known!r}." if known else f". {source.off()}"
        raise Unavailable(f"model: there is no {model!r} here{instead}")
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
    """Merge two lists that are sorted best first: a hit ranks high if it does so in one, and highest if in both."""
    by_words = {hit.message.document: hit for hit in worded}
    points: dict[int, float] = {}
    for ranked in (by_words, meant):
        for rank, document in enumerate(ranked):
            points[document] = points.get(document, 0) + 1 / (FUSION + rank)
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
    # Whole words first: for prefixes FTS5 collects every matching message, however few are wanted.
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
        if document in messages  # others were deleted meanwhile
    ]


def _ranks(candidates: Sequence[Candidate]) -> dict[int, float]:
    """Return the rank of each document, from its length and its number of hits: BM25's saturation, without word
    weights.

    Every candidate contains every word, so the rarity of a word matters little.
    """
    average = sum(length for _, length, _ in candidates) / max(len(candidates), 1)
    return {
        document: -hits / (hits + 1.2 * (0.25 + 0.75 * length / max(average, 1)))
        for document, length, hits in candidates
    }


def rebuild() -> int:
    """Rebuild the index of words from the messages; return their number."""
    with write():
        index_of_words().rebuild()
        return TopicMessage.objects.count()


WIDTH = 160  # characters
LOOKED_AT = 100  # hits of one message that are considered
TOKEN = re.compile(r"[^\W_]+")
# Possessive: an accent is part of both, and a text of accents would backtrack at every position.
APART = r"[\W_]++"
ACCENTS = "[\u0300-\u036f]*+"
GOES_ON, ENDS = "(?:[^\\W_]|[\u0300-\u036f])*+", r"(?![^\W_])"  # after the last token of a word


class _Folds(dict[int, int]):
    """Maps each character to one without case and accents, so that positions in a text stay the same."""

    def __missing__(self, point: int) -> int:
        base = re.sub(ACCENTS, "", unicodedata.normalize("NFD", chr(point).lower()))
        whole = unicodedata.normalize("NFC", base)
        self[point] = ord(whole) if len(whole) == 1 else point
        return self[point]


_FOLDS = _Folds()


def snippet(text: str, words: Sequence[str]) -> str:
    """Return a part of `text` with many of the words, each hit between HIT_STARTS and HIT_ENDS; without a hit, the
    beginning of the text. Words match as prefixes, without regard to case and accents."""
    hits = [
        (hit.start(), hit.end(), hit.lastgroup) for hit in islice(_pattern(words).finditer(_folded(text)), LOOKED_AT)
    ]
    if not hits:
        return opening(text)
    first, last = _part(text, max(hits, key=lambda hit: (_worth(hits, hit[0]), -hit[0]))[0])
    shown, done = ["…" if first else ""], first
    for start, end, _ in hits:
        if first <= start and end <= last:
            shown += [text[done:start], HIT_STARTS, text[start:end], HIT_ENDS]
            done = end
    return "".join([*shown, text[done:last], "…" if last < len(text) else ""])


def opening(text: str) -> str:
    """Return the beginning of a text, in one line."""
    line = " ".join(text[: WIDTH * 4].split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_FOLDS)


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Return the pattern of the words. Each is a phrase of its tokens; the last token is a prefix where it may go
    on."""
    phrases = []
    for number, word in enumerate(words):
        bare = re.sub(ACCENTS, "", _folded(word))
        tokens = ["".join(letter + ACCENTS for letter in token) for token in TOKEN.findall(bare)]
        if tokens:
            phrases.append(rf"(?P<word{number}>{APART.join(tokens)}){GOES_ON if may_go_on(word) else ENDS}")
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(phrases) or '(?!)'})")


def _worth(hits: Sequence[tuple[int, int, str | None]], start: int) -> tuple[int, int]:
    near = [word for start_of_hit, _, word in hits if start <= start_of_hit < start + WIDTH // 2]
    return len(set(near)), len(near)


def _part(text: str, hit: int) -> tuple[int, int]:
    """Return start and end of the part of `text` to show, between words if possible, with a little before the hit."""
    if len(text) <= WIDTH:
        return 0, len(text)
    start = max(0, min(hit - WIDTH // 4, len(text) - WIDTH))
    if start and (blank := re.search(r"\s", text[start:hit])):
        start += blank.end()
    end = min(len(text), start + WIDTH)
    if end < len(text) and (blanks := re.search(r"\s\S*\Z", text[start + WIDTH // 2 : end])):
        end = start + WIDTH // 2 + blanks.start()
    return start, end


REBUILD_FTS5 = "INSERT INTO topic_search(topic_search) VALUES ('rebuild')"
# FTS5's own bm25 reads every message with one of the words: for a common word the cost grows with the index.
CANDIDATES_FTS5 = """
    SELECT rowid, length(content_markdown), length(highlight(topic_search, 1, '.', '')) - length(content_markdown)
    FROM topic_search WHERE topic_search MATCH %s ORDER BY rowid DESC LIMIT %s
"""
CANDIDATES_TSVECTOR = """
    SELECT s.document, length(m.content_markdown), (
        SELECT coalesce(sum(cardinality(positions)), 0)::int FROM unnest(s.words)
        WHERE lexeme = ANY(%s::text[]) OR lexeme ^@ ANY(%s::text[])
    )
    FROM topic_search s JOIN topic_messages m USING (document)
    WHERE s.words @@ %s::tsquery {within} ORDER BY s.document DESC LIMIT %s
"""
REBUILD_TSVECTOR = """
    DELETE FROM topic_search;
    INSERT INTO topic_search (document, words) SELECT document, nexus_words(content_markdown) FROM topic_messages
"""


class Fts5:
    """The index on SQLite."""

    def candidates(
        self, words: Sequence[str], *, whole: bool, topic_id: str | None, limit: int
    ) -> list[tuple[int, int, int]]:
        """Return the newest documents, of a topic or of all, that contain every one of these `words_of` a query:
        `whole`, or as a prefix where it `may_go_on`."""
        with connection.cursor() as cursor:
            cursor.execute(CANDIDATES_FTS5, [_within(topic_id, fts5_query(words, whole=whole)), limit])
            return list(cursor.fetchall())

    def rebuild(self) -> None:
        """Rebuild the index from the messages."""
        with connection.cursor() as cursor:
            cursor.execute(REBUILD_FTS5)


class Tsvector:
    """The same on PostgreSQL."""

    def candidates(
        self, words: Sequence[str], *, whole: bool, topic_id: str | None, limit: int
    ) -> list[tuple[int, int, int]]:
        wanted = tsquery(words, whole=whole)
        if wanted is None:
            return []
        sql = CANDIDATES_TSVECTOR.format(within="" if topic_id is None else "AND m.topic_id = %s")
        with connection.cursor() as cursor:
            of_topic = [] if topic_id is None else [topic_id]
            cursor.execute(sql, [wanted.wholes, wanted.prefixes, wanted.text, *of_topic, limit])
            return list(cursor.fetchall())

    def rebuild(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(REBUILD_TSVECTOR)


def index_of_words() -> Fts5 | Tsvector:
    """Return the index of this process's database."""
    return Tsvector() if connection.vendor == "postgresql" else Fts5()


def _within(topic_id: str | None, words: str) -> str:
    wanted = f"content_markdown : ({words})"
    if topic_id is None:
        return wanted
    quoted = topic_id.replace('"', '""')
    return f'topic_id : "{quoted}" AND {wanted}'
