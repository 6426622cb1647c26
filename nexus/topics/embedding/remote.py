"""Embeddings from a service with OpenAI's protocol. Its key comes from the environment and is stored nowhere."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import httpx
import numpy as np
from pydantic import BaseModel, ValidationError

from nexus.topics.embedding.vectors import Array
from nexus.topics.toolset import Refused, Unavailable

KEY = "NEXUS_EMBEDDING_KEY"
STEP_SECONDS, TOTAL_SECONDS = 30, 60  # for one read or write; for all requests of one call
MAX_DIMENSION = 8192  # the most numbers of a vector
MAX_NUMBER = 32  # the most characters of a number in an answer, with its separators
MOST, FEWEST = 8000, 250  # characters of a text: the most, and the fewest to which it is cut
TOO_LONG = (400, 413, 422)  # answers of services to a text longer than their model takes
PROBE = ["what is the dimension"]  # a text that every model takes


class _Item(BaseModel):
    index: int
    embedding: list[float]


class _Answer(BaseModel):
    data: list[_Item]


class Remote:
    """A model of a service. Raises Unavailable where the service does not answer."""

    def __init__(self, name: str, url: str) -> None:
        self.name, self.url = name, f"{url.rstrip('/')}/embeddings"
        self.longest = MOST  # less, once the service has refused a text of that length
        self.dimension = len(self._ask(PROBE)[0])
        self.identity = f"{name}:{self.dimension}"

    def embed(self, texts: Sequence[str]) -> Array:
        """Return a row of `dimension` numbers for each text; of a very long text only the beginning is used. Raises
        Refused."""
        rows = self._ask(texts)
        if len(rows) != len(texts) or {len(row) for row in rows} != {self.dimension}:
            raise Unavailable("The embedding service answered vectors of another number or dimension.")
        return np.array(rows, np.float32)

    def _ask(self, texts: Sequence[str]) -> list[list[float]]:
        try:
            return asyncio.run(self._in_time(texts))
        except TimeoutError:
            raise Unavailable(f"The embedding service took longer than {TOTAL_SECONDS} seconds.") from None

    async def _in_time(self, texts: Sequence[str]) -> list[list[float]]:
        # asyncio's timeout holds for a whole answer; httpx has one for each read, which an occasional byte satisfies.
        async with asyncio.timeout(TOTAL_SECONDS), httpx.AsyncClient(timeout=STEP_SECONDS) as client:
            return await self._rows(client, texts)

    async def _rows(self, client: httpx.AsyncClient, texts: Sequence[str]) -> list[list[float]]:
        longest = self.longest
        status, answer = await self._post(client, texts, longest)
        while status in TOO_LONG and max(map(len, texts)) > FEWEST and longest > FEWEST:
            longest //= 2
            status, answer = await self._post(client, texts, longest)
        if status in TOO_LONG and texts != PROBE and await self._rows(client, PROBE):
            raise Refused(f"The embedding service refused a text with status {status}.")
        if status != httpx.codes.OK:
            raise Unavailable(f"The embedding service answered {status}.")
        self.longest = longest  # the length was the reason
        try:
            items = _Answer.model_validate_json(answer).data
        except ValidationError:
            items = []
        if not items or not items[0].embedding:
            raise Unavailable("The embedding service does not answer as the embeddings protocol says.")
        if max(len(item.embedding) for item in items) > MAX_DIMENSION:
            raise Unavailable(f"The embedding service answers vectors of more than {MAX_DIMENSION} numbers.")
        return [item.embedding for item in sorted(items, key=lambda item: item.index)]

    async def _post(self, client: httpx.AsyncClient, texts: Sequence[str], longest: int) -> tuple[int, bytes]:
        """Return the status and, if it is OK, the body. At most the possible size of the vectors is read."""
        # A compressed answer of some kilobytes may unpack to gigabytes, so none is requested or read.
        headers = {"accept-encoding": "identity"}
        if key := os.environ.get(KEY):
            headers["authorization"] = f"Bearer {key}"
        body = {"model": self.name, "input": [text[:longest] for text in texts]}
        try:
            async with client.stream("POST", self.url, json=body, headers=headers) as answer:
                if answer.status_code != httpx.codes.OK:
                    return answer.status_code, b""
                if answer.headers.get("content-encoding", "identity") != "identity":
                    raise Unavailable("The embedding service compresses its answer, although it is asked not to.")
                return answer.status_code, await _read(answer, (1 + len(texts)) * MAX_DIMENSION * MAX_NUMBER)
        except (httpx.HTTPError, httpx.InvalidURL):
            raise Unavailable("The embedding service cannot be reached.") from None


async def _read(answer: httpx.Response, most: int) -> bytes:
    """Return a body of at most `most` bytes. Raises Unavailable for a longer one."""
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > most:
            raise Unavailable(f"The embedding service answers more than {most} bytes.")
    return bytes(body)
