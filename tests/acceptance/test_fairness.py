"""Many calls of one key at a real hub: the call of another key is not behind them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.acceptance.hub import SERVERS, START_SECONDS, Hub

FLOOD = 400
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(hub: Hub) -> Stream:
    return await asyncio.open_connection(*hub.address)


async def call(hub: Hub, stream: Stream, key: str, name: str, toolset: str = "", /, **arguments: Any) -> int:
    """One call over a connection of its own, of the toolset at that path; the status of its answer."""
    reader, writer = stream
    body = json.dumps(arguments).encode()
    head = (
        f"POST /api/v1/{toolset}operations/{name} HTTP/1.1\r\nHost: {hub.authority}\r\nx-api-key: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    async with asyncio.timeout(START_SECONDS):
        answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("hub", SERVERS, indirect=True)
def test_a_call_is_not_behind_the_many_of_another_key(hub: Hub) -> None:
    keys = {agent_id: hub.key(agent_id) for agent_id in ("flooding", "other")}
    done: list[str] = []

    async def peek(stream: Stream, agent_id: str) -> None:
        assert await call(hub, stream, keys[agent_id], "inbox_peek", agent_id=agent_id) == 200
        done.append(agent_id)

    async def play() -> None:
        for agent_id in keys:  # the hub has seen both
            await peek(await connected(hub), agent_id)
        done.clear()
        streams = [await connected(hub) for _ in range(FLOOD + 1)]
        flood = [asyncio.ensure_future(peek(stream, "flooding")) for stream in streams[1:]]
        await asyncio.sleep(0)  # each is sent
        await peek(streams[0], "other")
        await asyncio.gather(*flood)

    asyncio.run(play())
    assert done.index("other") < FLOOD // 4
