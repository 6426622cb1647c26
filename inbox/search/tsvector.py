"""The full-text index on PostgreSQL, and the translation of a query into a tsquery.

The limits of a tsvector hold: of a long document the first 200,000 characters count, and a phrase such as `foo-bar` is
found among its first 16,383 words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from django.db import connection

from nexus.core.fulltext import may_go_on

NEWEST = """
    SELECT i.document, d.message_id FROM search_index i LEFT JOIN message_documents d USING (document)
    WHERE i.words @@ %s::tsquery {before} ORDER BY i.document DESC LIMIT %s
"""
TOKENS = "SELECT nexus_tokens(word) FROM unnest(%s::text[]) WITH ORDINALITY AS given(word, place) ORDER BY place"


class Query(NamedTuple):
    """A tsquery, and the last token of each of its words, whole or as a prefix."""

    text: str
    wholes: list[str]
    prefixes: list[str]


def query(words: Sequence[str], *, whole: bool = False) -> Query | None:
    """Return the tsquery for words, each a phrase of its tokens, a prefix where it may go on; None where no word has a
    token."""
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
    return Query(" & ".join(phrases), *ends) if phrases else None


def newest(words: Sequence[str], *, limit: int, before: int | None) -> list[tuple[int, str | None]]:
    wanted = query(words)
    if wanted is None:
        return []
    with connection.cursor() as cursor:
        sql = NEWEST.format(before="" if before is None else "AND i.document < %s")
        cursor.execute(sql, [wanted.text, *([] if before is None else [before]), limit])
        return list(cursor.fetchall())


def every(words: Sequence[str]) -> list[int]:
    wanted = query(words)
    if wanted is None:
        return []
    with connection.cursor() as cursor:
        cursor.execute("SELECT document FROM search_index WHERE words @@ %s::tsquery ORDER BY document", [wanted.text])
        return [row[0] for row in cursor.fetchall()]


@contextmanager
def emptied() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM search_index")  # first: the triggers then find nothing that they had to delete
        cursor.execute("DELETE FROM message_documents")
    yield
