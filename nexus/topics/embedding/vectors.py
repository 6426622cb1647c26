"""Vectors: their stored form, two bytes a number, and the search for the nearest."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nexus.topics.models import Embedding
from nexus.topics.toolset import Unavailable

Array = NDArray[np.float32]

STORED = np.dtype("<f2")  # its rounding error is far below the difference between two messages
AT_ONCE = 4096  # vectors in memory at once
COMPARED = 50_000  # vectors compared by one search: some hundred milliseconds at most, mostly to read them


def unit(rows: NDArray[Any]) -> Array:
    """Return rows of length one, so that their products are cosines. Raises Unavailable for rows that are not
    vectors."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise Unavailable("The embedding model returned something other than vectors.")
    return np.asarray(rows / np.maximum(lengths, np.float32(1e-12)), np.float32)


def nothing(dimension: int) -> Array:
    """Return the row for a text that the model cannot take: its distance to every other is the same."""
    return np.zeros((1, dimension), np.float32)


def stored(vector: Array) -> bytes:
    """Return a vector as a blob."""
    return vector.astype(STORED).tobytes()


def size(dimension: int) -> int:
    """Return the size of a blob in bytes."""
    return dimension * STORED.itemsize


def nearest(vector: Array, *, identity: str, topic_id: str | None, limit: int) -> tuple[dict[int, float], bool]:
    """Return the nearest documents with their cosines, nearest first and the newest of equal ones first; and whether
    older ones were not compared. Compared are the newest COMPARED of the topic, or of all."""
    rows, bytes_each = Embedding.objects.order_by("-message_id"), size(len(vector))
    if topic_id is not None:
        rows = Embedding.objects.filter(message__topic=topic_id).order_by("-message__seq")  # the order of their index
    documents, cosines, compared = np.empty(0, np.int64), np.empty(0, np.float32), 0
    # In double precision, rounded afterwards: in single precision the last bit of a product depends on its position in
    # the matrix, and so would the order of equal vectors.
    precise = vector.astype(np.float64)
    # The model is compared here: in the query, SQLite would use the index of models, whatever the topic.
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
