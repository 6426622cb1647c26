"""Waiting without blocking: hundreds of parked calls, and the hub goes on as if there were none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.hub import Hub, serving
from tests.conftest import Furnish

WAITS = 300
LONG = 600  # seconds that a wait may take here: no machine is so loaded that they are over before the test is


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    """A hub on which a wait may take that long."""
    home = furnish(tmp_path_factory.mktemp("hub") / "home")
    with serving(home, "--max-wait-timeout-seconds", str(LONG)) as served:
        yield served


def test_parked_waits_all_wake_when_their_event_comes_and_only_then(hub: Hub, tmp_path: Path) -> None:
    hub.call("agent_register", agent_id="a")

    async def play() -> None:
        roots = [tmp_path / "one", tmp_path / "two"]
        for root in roots:
            root.mkdir()
        limits = httpx.Limits(max_connections=WAITS + 10)
        async with httpx.AsyncClient(base_url=hub.url, timeout=LONG, limits=limits) as client:

            async def call(name: str, **arguments: object) -> dict[str, object]:
                envelope = (await client.post(f"/api/v1/operations/{name}", json=arguments)).json()
                assert envelope["ok"], envelope
                data: dict[str, object] = envelope["data"]
                return data

            async def wait(number: int) -> list[str]:
                root, stream = str(roots[number % 2]), "workspace"
                filters = {"type": "message.created"}
                data = await call(
                    "event_wait", project_root=root, agent_id="a", stream=stream, filters=filters, timeout_seconds=LONG
                )
                return [event["payload"]["subject"] for event in data["events"]]  # type: ignore[attr-defined]

            waits = [asyncio.create_task(wait(number)) for number in range(WAITS)]
            while await asyncio.to_thread(hub.parked) < WAITS:
                await asyncio.sleep(0.05)
            threads = len(list(Path(f"/proc/{hub.process.pid}/task").iterdir()))
            assert threads < WAITS / 5, "parked waits hold threads"  # the hub's fixed pools, full, are some fifty
            message = {"from_agent_id": "a", "body": "b", "target": {"strategy": "direct", "agent_id": "a"}}
            await call("message_create", project_root=str(roots[0]), subject="first", **message)
            assert await asyncio.gather(*waits[0::2]) == [["first"]] * (WAITS // 2)
            assert not any(task.done() for task in waits[1::2])
            await call("message_create", project_root=str(roots[1]), subject="second", **message)
            assert await asyncio.gather(*waits[1::2]) == [["second"]] * (WAITS // 2)
            assert await asyncio.to_thread(hub.parked) == 0

    asyncio.run(play())


def test_a_wait_whose_client_went_away_is_freed(hub: Hub, tmp_path: Path) -> None:
    wait = {"project_root": str(tmp_path), "agent_id": "a", "stream": "workspace", "timeout_seconds": LONG}

    async def play() -> None:
        async with httpx.AsyncClient(base_url=hub.url, timeout=LONG) as client:
            task = asyncio.create_task(client.post("/api/v1/operations/event_wait", json=wait))
            while await asyncio.to_thread(hub.parked) < 1:
                await asyncio.sleep(0.05)
            task.cancel()
            while await asyncio.to_thread(hub.parked) > 0:
                await asyncio.sleep(0.05)

    asyncio.run(asyncio.wait_for(play(), LONG / 2))  # sooner than the wait itself would end
