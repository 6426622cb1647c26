"""Vectors: as they are stored, two bytes a number, and the nearest of those that are."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nexus.topics.errors import Unavailable
from nexus.topics.models import Embedding

Array = NDArray[np.float32]

STORED = np.dtype("<f2")  # its error is far below the difference between two messages
AT_ONCE = 4096  # vectors in memory, however many there are
COMPARED = 50_000  # by one search: it takes some hundred milliseconds at most, most of them to read the vectors


def unit(rows: NDArray[Any]) -> Array:
    """Rows of length one, so that their products are cosines. Raises Unavailable for what is no vector."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise Unavailable("The embedding model answers what is no vector.")
    return np.asarray(rows / np.maximum(lengths, np.float32(1e-12)), np.float32)


def nothing(dimension: int) -> Array:
    """The row of a text that means nothing to a model: it is as far from every other."""
    return np.zeros((1, dimension), np.float32)


def stored(vector: Array) -> bytes:
    """A vector as a blob."""
    return vector.astype(STORED).tobytes()


def size(dimension: int) -> int:
    """The bytes of a blob."""
    return dimension * STORED.itemsize


def nearest(vector: Array, *, identity: str, topic_id: str | None, limit: int) -> tuple[dict[int, float], bool]:
    """The nearest documents with their cosines, nearest first and of equal ones the newest; and whether there may be
    older ones behind those that were compared, which are the newest COMPARED of the topic, or of all."""
    rows, bytes_each = Embedding.objects.order_by("-message_id"), size(len(vector))
    if topic_id is not None:
        rows = Embedding.objects.filter(message__topic=topic_id).order_by("-message__seq")  # as their index is
    documents, cosines, compared = np.empty(0, np.int64), np.empty(0, np.float32), 0
    # In double precision, rounded afterwards: in single precision the last bit of a product depends on its place in
    # the matrix, and so would the order of equal vectors.
    precise = vector.astype(np.float64)
    # The model is compared here: asked for it, SQLite reads the index of models, whatever the topic.
    read = rows.values_list("message_id", "model", "vector")[:COMPARED].iterator(chunk_size=AT_ONCE)
    while chunk := list(islice(read, AT_ONCE)):
        compared += len(chunk)
        fitting = {document: blob for document, model, blob in chunk if model == identity and len(blob) == bytes_each}
        halves = np.frombuffer(b"".join(fitting.values()), STORED).reshape(-1, len(vector))
        documents = np.append(documents, np.fromiter(fitting, np.int64))
        cosines = np.append(cosines, (halves.astype(np.float64) @ precise).astype(np.float32))
        best = np.lexsort((-documents, -cosines))[:limit]
        documents, cosines = documents[best], cosines[best]
    return dict(zip(documents.tolist(), cosines.tolist(), strict=True)), compared == COMPARED
