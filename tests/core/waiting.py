"""How a test follows the log from an event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from coordination.toolset import arun
from nexus.core import waiting
from tests.acceptance.hub import START_SECONDS
from tests.conftest import LOCAL

LONG = 25  # seconds a wait may take before it counts as lost


def follow(project: str, **arguments: Any) -> asyncio.Task[dict[str, Any]]:
    """Start an event_wait of ann's in the background."""
    asked = {"project_root": project, "agent_id": "ann", "stream": "workspace", "timeout_seconds": LONG, **arguments}
    return asyncio.create_task(arun(LOCAL, "event_wait", asked))


async def parked(count: int = 1) -> None:
    """Return once so many waits have parked."""
    async with asyncio.timeout(START_SECONDS):
        while len(waiting.waiter().parked) < count:
            await asyncio.sleep(0.001)


async def at_rest(count: int) -> None:
    """Return once so many waits have parked, have looked at the store, and wait to be woken."""
    async with asyncio.timeout(START_SECONDS):
        while sum(wait._over is not None for wait in waiting.waiter().parked) < count:
            await asyncio.sleep(0.001)


async def page_of(wait: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
    """What a wait answered."""
    envelope = await asyncio.wait_for(wait, LONG)
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


async def put(project: str, name: str = "x") -> dict[str, Any]:
    """Commit an event that everybody in the project sees."""
    arguments = {"project_root": project, "artifact_type": "text", "content": "c", "name": name}
    envelope = await arun(LOCAL, "artifact_put", arguments)
    data: dict[str, Any] = envelope["data"]
    return data


def names(page: dict[str, Any]) -> list[str]:
    """The artifacts that the events of a page tell of."""
    return [event["payload"]["name"] for event in page["events"]]
