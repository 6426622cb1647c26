"""What a commit at one hub costs another hub at the same database, whose waits it does not concern.

CPU time of the other hub for each message that is sent, without what its waits take while nobody writes. On the server
that NEXUS_TEST_SERVER names, or on a cluster of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import Benchmark, Figures, Server, amount, raise_file_limit, running, sender, sent
from tests.postgres import SERVER, fresh_database, programs

AGENTS = 20  # that wait
LINE = "CPU of the other hub, ms for each message"


async def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """The cost of a message; nothing where PostgreSQL is not installed."""
    if not SERVER and programs() is None:
        print("PostgreSQL is not installed here.", file=sys.stderr)
        return {}
    raise_file_limit()
    with ExitStack() as stack:
        for number in range(2):
            (scratch / f"project-{number}").mkdir()
        url = stack.enter_context(fresh_database(scratch, settings=()))
        settings = {"NEXUS_DATABASE_URL": url, "NEXUS_MAX_WAIT_TIMEOUT_SECONDS": "3600"}
        here, there = (stack.enter_context(running(scratch / f"hub-{hub}", **settings)) for hub in (1, 2))
        return {"NOTIFY": await _cost(here, there, scratch, options)}


async def _cost(here: Server, there: Server, scratch: Path, options: argparse.Namespace) -> dict[str, float]:
    async with httpx.AsyncClient(base_url=there.url, timeout=None, limits=httpx.Limits(max_connections=None)) as client:

        async def call(name: str, **arguments: Any) -> None:
            answer = await client.post(f"/api/v1/operations/{name}", json=arguments)
            assert answer.json()["ok"], answer.text

        for number in range(AGENTS):
            await call("agent_register", agent_id=f"waiting-{number}")
        asked = {"project_root": str(scratch / "project-1"), "stream": "workspace", "timeout_seconds": 3600}
        waits = [
            asyncio.create_task(call("event_wait", agent_id=f"waiting-{number % AGENTS}", **asked))
            for number in range(options.waits)
        ]
        while f"nexus_parked_waits {options.waits}.0" not in (await client.get("/metrics")).text:
            done, _ = await asyncio.wait(waits, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
            assert not [wait.result() for wait in done], "a wait that ended is parked no more"
        await asyncio.sleep(2)
        idle = there.cpu_seconds()
        await asyncio.sleep(options.seconds)
        idle = there.cpu_seconds() - idle
        send = await asyncio.to_thread(sender, here, scratch, 0)  # not before: a hub closes connections that are idle
        await asyncio.to_thread(send)
        before, began = there.cpu_seconds(), time.perf_counter()
        messages = await asyncio.to_thread(sent, [send], options.seconds)
        busy = there.cpu_seconds() - before - idle * (time.perf_counter() - began) / options.seconds
        assert not any(wait.done() for wait in waits), "no message concerned them"
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return {LINE: busy * 1000 / messages, "messages": messages, "waits": options.waits}


BENCHMARK = Benchmark(
    "waits",
    __doc__,
    measure,
    {"--waits": amount(2000, "at the other hub"), "--seconds": amount(20.0, "of sending, and of rest before")},
    quick={"waits": 50, "seconds": 2.0},
)
if __name__ == "__main__":
    BENCHMARK.main()
