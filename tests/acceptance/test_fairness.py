"""One key's many calls at once, against a real hub: others' are not behind them, and waits hold up nobody."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import START_SECONDS, Hub

FLOOD = 400
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(hub: Hub) -> Stream:
    return await asyncio.open_connection(*hub.address)


async def call(hub: Hub, stream: Stream, key: str, name: str, /, **arguments: Any) -> int:
    """One call over a connection of its own; the status of its answer."""
    reader, writer = stream
    body = json.dumps(arguments).encode()
    head = (
        f"POST /api/v1/operations/{name} HTTP/1.1\r\nHost: {hub.authority}\r\nx-api-key: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    async with asyncio.timeout(START_SECONDS):
        answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])


@pytest.fixture(scope="module")
def keys(hub: Hub) -> tuple[str, str]:
    """Of who floods and of another; both were seen by the hub before."""

    async def seen(key: str, agent_id: str) -> None:
        assert await call(hub, await connected(hub), key, "inbox_peek", agent_id=agent_id) == 200

    made = hub.key("flooding"), hub.key("other")
    for key, agent_id in zip(made, ("flooding", "other"), strict=True):
        asyncio.run(seen(key, agent_id))
    return made


def test_a_call_is_not_behind_the_many_of_another_key(hub: Hub, keys: tuple[str, str]) -> None:
    async def play() -> int:
        answered: list[str] = []

        async def one(stream: Stream, key: str, agent_id: str) -> None:
            assert await call(hub, stream, key, "inbox_peek", agent_id=agent_id) == 200
            answered.append(agent_id)

        streams = [await connected(hub) for _ in range(FLOOD + 1)]
        flood = [asyncio.ensure_future(one(stream, keys[0], "flooding")) for stream in streams[1:]]
        await asyncio.sleep(0)  # each is sent
        await one(streams[0], keys[1], "other")
        await asyncio.gather(*flood)
        return answered.index("other")

    assert asyncio.run(play()) < FLOOD // 4


def test_parked_waits_leave_their_own_keys_calls_a_turn(hub: Hub, keys: tuple[str, str], tmp_path: Path) -> None:
    wait = {
        "project_root": str(tmp_path),
        "agent_id": "flooding",
        "stream": "workspace",
        "filters": {"type": "message.created"},
    }

    async def play() -> Counter[int]:
        streams = [await connected(hub) for _ in range(101)]
        waits = [
            asyncio.ensure_future(call(hub, stream, keys[0], "event_wait", timeout_seconds=30, **wait))
            for stream in streams[1:]
        ]
        while await asyncio.to_thread(hub.parked) < 100:
            assert not any(each.done() for each in waits)
        assert await call(hub, streams[0], keys[0], "inbox_peek", agent_id="flooding") == 200
        assert not any(each.done() for each in waits)
        await asyncio.to_thread(
            hub.call,
            "message_create",
            project_root=str(tmp_path),
            from_agent_id="other",
            subject="s",
            body="b",
            target={"strategy": "direct", "agent_id": "flooding"},
        )
        return Counter(await asyncio.gather(*waits))

    assert asyncio.run(play()) == {200: 100}
