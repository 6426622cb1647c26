"""Full-text queries: the words of a query, their form in each database, the marks around hits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from django.db import connection

MAX_WORDS, MAX_WORD = 12, 64
SHORTEST = 3  # bytes of a word that may go on: a Chinese character, or three Latin letters
HIT_STARTS, HIT_ENDS = "\ue000", "\ue001"
RUN = re.compile(r"[^\W_]+")
TOKENS = "SELECT nexus_tokens(word) FROM unnest(%s::text[]) WITH ORDINALITY AS given(word, position) ORDER BY position"


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of characters other than blanks, quotes and control characters, without those
    that are punctuation only."""
    runs = re.split(r'[\s"\x00-\x1f\x7f]+', text[:1000])
    return [run[:MAX_WORD] for run in runs if re.search(r"\w", run.replace("_", ""))][:MAX_WORDS]


def may_go_on(word: str) -> bool:
    """Return whether a word also finds longer words that begin with it; one or two letters would find most texts."""
    *_, last = RUN.findall(word) or [""]
    return len(last.encode(errors="replace")) >= SHORTEST


def fts5_query(words: Sequence[str], *, whole: bool = False) -> str:
    """Return the FTS5 query for words. Each is quoted, so that none is an operator; a prefix where it may go on."""
    return " ".join(f'"{word}"' if whole or not may_go_on(word) else f'"{word}"*' for word in words)


class TsQuery(NamedTuple):
    """A tsquery, and the last token of each of its words, whole or as a prefix."""

    text: str
    wholes: list[str]
    prefixes: list[str]


def tsquery(words: Sequence[str], *, whole: bool = False) -> TsQuery | None:
    """Return the tsquery for words, each a phrase of its tokens, a prefix where it may go on; None where no word has a
    token.

    The limits of a tsvector hold: of a long document the first 200,000 characters count, and a phrase such as `foo-bar`
    is found among its first 16,383 words.
    """
    with connection.cursor() as cursor:
        cursor.execute(TOKENS, [list(words)])
        rows = cursor.fetchall()
    phrases, ends = [], (list[str](), list[str]())
    for word, (tokens,) in zip(words, rows, strict=True):
        if tokens:
            goes_on = not whole and may_go_on(word)
            # A token is letters and digits, so that it needs no quotes.
            phrases.append(" <-> ".join(tokens) + (":*" if goes_on else ""))
            ends[goes_on].append(tokens[-1])
    return TsQuery(" & ".join(phrases), *ends) if phrases else None
