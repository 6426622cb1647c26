"""Which thread does what in a hub: nobody waits for another's slow page while a thread is free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async

from core import waiting
from nexus_site.asgi import DJANGO_THREADS, Django, Hub

PATIENCE = 60  # a bound against hanging, not a figure


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What slow work waits for."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_slow_page_holds_up_no_other_request(gate: threading.Event) -> None:
    begun = threading.Event()

    class Pages(Django):
        async def handle(self, scope: Any, receive: Any, send: Any) -> None:
            await sync_to_async(scope["page"])()

    def slow() -> None:
        begun.set()
        assert gate.wait(PATIENCE)

    pages = Pages(2)
    stuck = asyncio.create_task(pages({"page": slow}, None, None))
    await asyncio.to_thread(begun.wait)
    for _ in range(10):
        await asyncio.wait_for(pages({"page": int}, None, None), PATIENCE / 2)
    assert not stuck.done()
    gate.set()
    await stuck


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_who_looks_after_the_hub_waits_for_nobody(committed: None, gate: threading.Event, path: str) -> None:
    hub = Hub()

    def block(pool: ThreadPoolExecutor, threads: int) -> None:
        for _ in range(threads):
            pool.submit(gate.wait, PATIENCE)

    block(hub.django.threads, DJANGO_THREADS)
    block(waiting.READERS, 4)
    block(waiting.WRITERS, 1)
    block(waiting.SLOW, 2)
    transport = httpx.ASGITransport(app=hub, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await asyncio.wait_for(client.get(path), PATIENCE / 2)
    assert answer.status_code == 200
    gate.set()
