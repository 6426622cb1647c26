"""`/mcp` as an ASGI application, before a request comes to the SDK."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.db import OperationalError
from sse_starlette.sse import EventSourceResponse

from coordination.toolset import arun
from mcp_bridge import http
from nexus.core.operations.caller import Caller
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import HELLO

HOUR = 3600


async def test_it_answers_in_the_envelope_where_who_asks_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any, **how: Any) -> Any:
        raise OperationalError("disk I/O error")

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    sent: list[Any] = []
    monkeypatch.setattr(http, "identify", fails)
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [], "query_string": b""}
    await http.McpEndpoint()(scope, receive, send)
    start, body = sent
    assert start["status"] == 503
    assert json.loads(body["body"])["error"]["code"] == "DB_ERROR"


async def test_a_silent_streams_first_ping_comes_soon_after_its_beginning(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "FIRST_PING_SECONDS", 0)
    monkeypatch.setattr(EventSourceResponse, "DEFAULT_PING_INTERVAL", HOUR)
    created = await arun(Caller("test", operator="olga"), "agent_create", {"agent_id": "ann"})
    endpoint = http.McpEndpoint()
    headers = [(b"x-api-key", created["data"]["api_key"].encode()), (b"accept", b"text/event-stream, application/json")]

    async def begun(method: str, body: Any, *more: tuple[bytes, bytes]) -> tuple[asyncio.Task[None], Any]:
        """The request, and what it is answered, message by message."""
        asked, answered = asyncio.Queue[Any](), asyncio.Queue[Any]()
        asked.put_nowait({"type": "http.request", "body": json.dumps(body).encode()})
        named = [*headers, (b"host", b"localhost"), (b"content-type", b"application/json"), *more]
        scope = {"type": "http", "method": method, "path": "/mcp", "headers": named, "query_string": b""}
        return asyncio.create_task(endpoint(scope, asked.get, answered.put)), answered

    async with asyncio.timeout(START_SECONDS):
        initialized, answers = await begun("POST", HELLO)
        session = dict((await answers.get())["headers"])[b"mcp-session-id"]
        await initialized
        stream, answers = await begun("GET", None, (b"mcp-session-id", session))
        assert (await answers.get())["status"] == 200
        assert [(await answers.get())["body"] for _ in range(2)] == [b": open\n\n", b": ping\n\n"]
        stream.cancel()
        await asyncio.gather(stream, return_exceptions=True)
        await endpoint.stop()
