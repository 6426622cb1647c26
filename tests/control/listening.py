"""A client of an agent's stream, without a server between."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from django.db import connection

from nexus.control.rpc.endpoint import ENDPOINT
from tests.acceptance.hub import START_SECONDS
from tests.control.wire import TOKEN

WITH_TOKEN = (("authorization", f"Bearer {TOKEN}"),)


class Listener:
    """A client of a stream: what it was told, a message at a time."""

    def __init__(self) -> None:
        self.status = 0
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self.sent = 0

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await self.reading.wait()  # the connection takes nothing while nobody reads
        self.sent += 1
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif text := message["body"].decode():
            await self.messages.put(decoded(text))

    async def next(self, event: str) -> dict[str, Any]:
        """The next message of a kind."""
        while True:
            message = await asyncio.wait_for(self.messages.get(), START_SECONDS)
            if message.get("event") == event:
                return message


def decoded(text: str) -> dict[str, Any]:
    """The fields of a server-sent message, or JSON that is none."""
    if text.startswith("{"):
        return {"event": "error", "data": json.loads(text)}
    fields = dict(line.partition(": ")[::2] for line in text.strip().split("\n"))
    return {**fields, "data": json.loads(fields["data"])} if "data" in fields else fields


@asynccontextmanager
async def listening(
    agent_id: str = "lead", query: str = "", *, headers: Sequence[tuple[str, str]] = WITH_TOKEN, method: str = "GET"
) -> AsyncIterator[tuple[Listener, asyncio.Task[None]]]:
    listener = Listener()
    scope = {
        "type": "http",
        "method": method,
        "path": f"/agent/{agent_id}/stream",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in (("host", "127.0.0.1:8420"), *headers)],
        "client": ("127.0.0.1", 1),
    }
    task = asyncio.create_task(ENDPOINT(scope, listener.receive, listener.send))
    try:
        yield listener, task
    finally:
        listener.gone.set()
        listener.reading.set()
        await asyncio.wait_for(task, START_SECONDS)


async def do(function: Callable[[], Any]) -> Any:
    """Something that is done meanwhile, on a thread with a connection of its own."""

    def with_connection() -> Any:
        try:
            return function()
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as other:
        return await asyncio.get_running_loop().run_in_executor(other, with_connection)
