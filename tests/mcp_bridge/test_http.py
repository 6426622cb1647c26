"""`/mcp` as an ASGI application, before a request comes to the SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError

from mcp_bridge import http


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
