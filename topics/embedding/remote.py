"""Embeddings from a service that speaks OpenAI's protocol; its key is in the environment and is stored nowhere."""

from __future__ import annotations

import os
from collections.abc import Sequence

import httpx
import numpy as np
from pydantic import BaseModel, ValidationError

from topics.embedding.unavailable import Unavailable
from topics.embedding.vectors import Array

KEY = "NEXUS_EMBEDDING_KEY"
TIMEOUT_SECONDS = 30
MOST_CHARACTERS = 8000  # of a text: services refuse what is longer than their model takes, commonly 8,192 tokens


class _Item(BaseModel):
    index: int
    embedding: list[float]


class _Answer(BaseModel):
    data: list[_Item]


class Remote:
    """A model of a service. Raises Unavailable where it does not answer."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, f"{url.rstrip('/')}/embeddings"
        self.dimension = len(self._ask(["what is the dimension"])[0])
        self.identity = f"{name}:{self.dimension}"

    def embed(self, texts: Sequence[str]) -> Array:
        """A row of `dimension` numbers for each text; of a very long one its beginning counts."""
        rows = self._ask([text[:MOST_CHARACTERS] for text in texts])
        if len(rows) != len(texts) or {len(row) for row in rows} != {self.dimension}:
            raise Unavailable("The embedding service answered vectors of another number or dimension.")
        return np.array(rows, np.float32)

    def _ask(self, texts: Sequence[str]) -> list[list[float]]:
        headers = {"authorization": f"Bearer {key}"} if (key := os.environ.get(KEY)) else {}
        try:
            answer = httpx.post(
                self.url, json={"model": self.name, "input": texts}, headers=headers, timeout=TIMEOUT_SECONDS
            )
            answer.raise_for_status()
            items = _Answer.model_validate_json(answer.content).data
        except httpx.HTTPStatusError as error:
            raise Unavailable(f"The embedding service answered {error.response.status_code}.") from None
        except (httpx.HTTPError, httpx.InvalidURL):
            raise Unavailable("The embedding service cannot be reached.") from None
        except ValidationError:
            items = []
        if not items or not items[0].embedding:
            raise Unavailable("The embedding service does not answer as the embeddings protocol says.")
        return [item.embedding for item in sorted(items, key=lambda item: item.index)]
