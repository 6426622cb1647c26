"""Embeddings from a service that speaks OpenAI's protocol; its key is in the environment and is stored nowhere."""

from __future__ import annotations

import os
from collections.abc import Sequence

import httpx
import numpy as np
from pydantic import BaseModel, ValidationError

from topics.embedding.unavailable import Refused, Unavailable
from topics.embedding.vectors import Array

KEY = "NEXUS_EMBEDDING_KEY"
TIMEOUT_SECONDS = 30
MOST, FEWEST = 8000, 250  # characters of a text
TOO_LONG = (400, 413, 422)  # what services answer to a text that is longer than their model takes
PROBE = ["what is the dimension"]  # which every model takes


class _Item(BaseModel):
    index: int
    embedding: list[float]


class _Answer(BaseModel):
    data: list[_Item]


class Remote:
    """A model of a service. Raises Unavailable where it does not answer."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, f"{url.rstrip('/')}/embeddings"
        self.longest = MOST  # and less, as far as the service makes it known by refusing
        self.dimension = len(self._ask(PROBE)[0])
        self.identity = f"{name}:{self.dimension}"

    def embed(self, texts: Sequence[str]) -> Array:
        """A row of `dimension` numbers for each text; of a very long one its beginning counts. Raises Refused."""
        rows = self._ask(texts)
        if len(rows) != len(texts) or {len(row) for row in rows} != {self.dimension}:
            raise Unavailable("The embedding service answered vectors of another number or dimension.")
        return np.array(rows, np.float32)

    def _ask(self, texts: Sequence[str]) -> list[list[float]]:
        longest = self.longest
        answer = self._post(texts, longest)
        while answer.status_code in TOO_LONG and max(map(len, texts)) > FEWEST and longest > FEWEST:
            longest //= 2
            answer = self._post(texts, longest)
        if answer.status_code in TOO_LONG and texts != PROBE and self._ask(PROBE):
            raise Refused(f"The embedding service answered {answer.status_code} to what it was sent.")
        if answer.status_code != httpx.codes.OK:
            raise Unavailable(f"The embedding service answered {answer.status_code}.")
        self.longest = longest  # it was the length
        try:
            items = _Answer.model_validate_json(answer.content).data
        except ValidationError:
            items = []
        if not items or not items[0].embedding:
            raise Unavailable("The embedding service does not answer as the embeddings protocol says.")
        return [item.embedding for item in sorted(items, key=lambda item: item.index)]

    def _post(self, texts: Sequence[str], longest: int) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"} if (key := os.environ.get(KEY)) else {}
        body = {"model": self.name, "input": [text[:longest] for text in texts]}
        try:
            return httpx.post(self.url, json=body, headers=headers, timeout=TIMEOUT_SECONDS)
        except (httpx.HTTPError, httpx.InvalidURL):
            raise Unavailable("The embedding service cannot be reached.") from None
