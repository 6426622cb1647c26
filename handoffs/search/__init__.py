"""Full-text search over handoffs: their titles, payloads and results. The index is kept by triggers.

Words are as the search of messages has them (`inbox.search`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from django.db import connection

from handoffs.search import fts5, tsvector
from nexus.core.fulltext import words_of


class Index(Protocol):
    """The full-text index of one database; a module implements it. Its `words` are as `words_of` gives them."""

    def newest(self, words: Sequence[str], limit: int) -> list[int]:
        """The newest documents with every word, each from its beginning, newest first."""


def holding(text: str, limit: int) -> list[int]:
    """The `created_event_id`s of the newest handoffs that hold every word of `text`, each from its beginning."""
    words = words_of(text)
    return _index().newest(words, limit) if words else []


def _index() -> Index:
    return cast(Index, tsvector if connection.vendor == "postgresql" else fts5)
