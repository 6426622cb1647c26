"""Background work that makes vectors of messages. A server runs `EMBEDDING`; `nexus topics reindex` calls
`catch_up`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nexus.core.background_work import BackgroundWork
from nexus.topics.embedding import index, source
from nexus.topics.embedding.index import Text
from nexus.topics.models import TopicMessage
from nexus.topics.toolset import Unavailable

log = logging.getLogger(__name__)

BATCH = 16  # some hundred milliseconds of a model on a CPU


@dataclass(frozen=True)
class Embedded:
    """The vectors of a batch, and the model that made them."""

    identity: str
    vectors: Sequence[bytes]


class EmbeddingWork(BackgroundWork[Sequence[Text], Embedded | None]):
    """One queue; an item is a batch of messages. The outcome is None where the model fails. The work is idempotent."""

    name = "embedding"
    watches_log = True
    tick_seconds = 5.0

    def queues(self) -> Sequence[str]:
        return ["topics"] if source.is_enabled() else []

    def claim(self, queue: str) -> Sequence[Text] | None:
        """Return the next messages. An empty batch makes it load the model, where it is not loaded and there
        are messages."""
        embedder = source.loaded()
        if embedder is None:
            return () if source.is_enabled() and TopicMessage.objects.exists() else None
        return index.pending(embedder.identity, BATCH) or None

    def act(self, item: Sequence[Text]) -> Embedded | None:
        try:
            return _embedded(item)
        except Unavailable as failure:
            log.warning("messages of topics are not indexed by meaning: %s", failure)
            return None

    def given_up(self, item: Sequence[Text], why: str) -> Embedded | None:
        if (embedder := source.loaded()) is None:
            return None
        from nexus.topics.embedding.vectors import nothing, stored

        log.warning("%d messages of topics are found by their words alone: %s", len(item), why)
        return Embedded(embedder.identity, [stored(row) for _ in item for row in nothing(embedder.dimension)])

    def settle(self, item: Sequence[Text], outcome: Embedded | None) -> bool:
        if outcome is not None and item:
            index.store_vectors(outcome.identity, item, outcome.vectors)
        return outcome is not None


EMBEDDING = EmbeddingWork()


def catch_up() -> Iterator[int]:
    """Index what is pending, in this thread; yield the number of messages left, first and after each batch.

    Raises Unavailable.
    """
    from nexus.topics.embedding.vectors import size

    embedder = source.current()
    index.mend(embedder.identity, size(embedder.dimension))
    yield index.count_missing(embedder.identity)
    while batch := index.pending(embedder.identity, BATCH):
        embedded = _embedded(batch)
        index.store_vectors(embedded.identity, batch, embedded.vectors)
        yield index.count_missing(embedder.identity)


def _embedded(texts: Sequence[Text]) -> Embedded:
    if not texts:
        return Embedded(source.current().identity, ())
    from nexus.topics.embedding.vectors import stored

    embedder, rows = source.embed([text for _, text in texts])
    return Embedded(embedder.identity, [stored(row) for row in rows])
