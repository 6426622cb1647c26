"""An agent live: one connection of its server-sent events (docs/reference/json-rpc.md)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
from httpx_sse import EventSource, SSEError

from nexus.client.errors import NotReached, failure
from nexus.client.http import MAX_RESPONSE_BYTES, TooLarge
from nexus.client.jsonrpc import RpcError, parse_response

SILENCE_SECONDS = 45.0  # a server sends a heartbeat three times as often


@dataclass(frozen=True)
class StreamMessage:
    """A message of the stream. `position` is where to resume after it."""

    event: str  # entry, state or draft; empty for a heartbeat
    data: dict[str, Any]
    position: str | None

    @property
    def is_last(self) -> bool:
        """Whether no message follows."""
        return self.event == "state" and self.data.get("ended") is True

    @property
    def place(self) -> str | None:
        """The former name of `position`, for one release."""
        return self.position


Told = StreamMessage  # its former name, for one release


async def read_stream(
    client: httpx.AsyncClient, url: str, position: str | None, *, token: str | None, seconds: float
) -> AsyncGenerator[StreamMessage, None]:
    """Yield the messages of one connection; the response must begin within so many seconds.

    Raises httpx.HTTPError, TimeoutError, TooLarge, NotReached, NotAuthorized, CallFailed.
    """
    headers = {"accept": "text/event-stream", "accept-encoding": "identity"}
    if position is not None:
        headers["last-event-id"] = position
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    request = client.build_request("GET", url, headers=headers, timeout=httpx.Timeout(seconds, read=SILENCE_SECONDS))
    async with asyncio.timeout(seconds):
        response = await client.send(request, stream=True)
    try:
        if response.status_code == 204:
            yield StreamMessage("state", {"ended": True}, position)
            return
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        if response.status_code != 200:
            if response.is_server_error:  # it may be temporary
                response.raise_for_status()
            async with asyncio.timeout(seconds):
                raise failure(response.status_code, _error(await response.aread()))
        async for message in EventSource(response).aiter_sse():
            data = json.loads(message.data or "{}")
            if not isinstance(data, dict):
                raise ValueError("a message that is no object")
            yield StreamMessage(message.event if message.data else "", data, message.id or None)
    except (SSEError, RpcError, ValueError, RecursionError) as error:
        raise NotReached(f"{url} is no server's stream: {error}") from None
    finally:
        await response.aclose()


def _error(body: bytes) -> Mapping[str, Any]:
    """Return the JSON-RPC error of a refusal. Raises RpcError."""
    error = parse_response(body).error
    if error is None:
        raise ValueError("it answers something else than it was asked")
    return error


class _Bounded(httpx.AsyncByteStream):
    """A response body whose lines are limited. Raises TooLarge."""

    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self.inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for data in self.inner:
            end = data.rfind(b"\n")
            length = length + len(data) if end < 0 else len(data) - end
            if length > MAX_RESPONSE_BYTES:
                raise TooLarge
            yield data

    async def aclose(self) -> None:
        await self.inner.aclose()
