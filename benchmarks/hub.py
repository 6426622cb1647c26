"""The figures of the hub, under Daphne (`serve`) and under uvicorn, each beside its yardstick of the same run.

python -m benchmarks.hub
python -m benchmarks.hub --quick --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from mcp.client.client import Client

from benchmarks.stdio import ROOT, RUNMCP, connect

PARKED = 500
CLIENTS = 16
SERVERS = {
    "daphne": ["manage.py", "serve", "--port"],
    "uvicorn": ["-m", "uvicorn", "nexus_site.asgi:application", "--log-level", "warning", "--port"],
}
NOOP = ["-m", "uvicorn", "benchmarks.noop_server:application", "--factory", "--log-level", "warning", "--port"]
IDLE_SECONDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300, help="timed calls of each kind (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer calls, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    calls = 30 if options.quick else options.calls
    figures = {server: asyncio.run(measure(server, calls)) for server in SERVERS}
    print(json.dumps(figures, indent=2) if options.json else table(figures))


async def measure(server: str, calls: int) -> dict[str, float]:
    """Every figure of one server: medians in milliseconds, ratios, calls a second and a share of one core."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch, running(NOOP, Path(scratch)) as noop:
        home, project = Path(scratch, "home"), str(Path(scratch).resolve())
        with running(SERVERS[server], home) as hub:
            async with AsyncExitStack() as stack:
                rest = await stack.enter_async_context(httpx.AsyncClient(base_url=hub.url, timeout=60))
                keys = [await key(rest, f"agent-{number}") for number in range(CLIENTS)]
                clients = [await stack.enter_async_context(Client(f"{hub.url}/mcp?api_key={k}")) for k in keys]
                bare = await stack.enter_async_context(Client(f"{noop.url}/mcp"))
                sender = clients[0]
                kinds = {
                    "no-op call, bare SDK server": lambda: bare.call_tool("noop", {}),
                    "no-op call, hub": lambda: sender.call_tool("noop", {}),  # a tool that is not there
                    "message_create": lambda: send(sender, project),
                }
                figures |= await medians(kinds, calls)
                for kind in list(kinds)[:2]:
                    figures[f"message_create to {kind}"] = figures["message_create"] / figures[kind]
                figures[f"messages a second, {CLIENTS} clients"] = await throughput(clients, project, calls)
                figures["push, same hub"] = await push(hub, lambda: send(sender, project), calls // 5)
                stdio = await connect(stack, *RUNMCP, home=home)
                figures["push, sender on stdio"] = await push(hub, lambda: send(stdio, project), calls // 5)
                none = await timed(lambda: send(sender, project), calls)
                async with parked_waits(hub, rest, project):
                    parked = await timed(lambda: send(sender, project), calls * 2)
                    before = hub.cpu_seconds()
                    await asyncio.sleep(IDLE_SECONDS)
                    figures[f"idle, {PARKED} parked, % of a core"] = (hub.cpu_seconds() - before) / IDLE_SECONDS * 100
                none += await timed(lambda: send(sender, project), calls)  # before and after: a machine drifts
                figures["message_create, none parked"] = statistics.median(none) * 1000
                figures[f"message_create, {PARKED} parked"] = statistics.median(parked) * 1000
                figures["parked to none"] = statistics.median(parked) / statistics.median(none)
    return {what: round(value, 2) for what, value in figures.items()}


async def medians(kinds: dict[str, Any], calls: int) -> dict[str, float]:
    """The median of each kind of call, in ms; the kinds take turns, so that a slow moment hits all alike."""
    samples: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(calls):
        for kind, call in kinds.items():
            samples[kind].append(await _seconds(call()))
    return {kind: statistics.median(values[calls // 10 :]) * 1000 for kind, values in samples.items()}


async def timed(call: Any, times: int) -> list[float]:
    """How long each of some calls took, in s."""
    return [await _seconds(call()) for _ in range(times)]


async def throughput(clients: list[Client], project: str, calls: int) -> float:
    """Messages a second from all clients at once."""

    async def work(client: Client, number: int) -> None:
        for _ in range(max(5, calls // 10)):
            await send(client, project, f"agent-{number}")

    seconds = await _seconds(asyncio.gather(*(work(client, number) for number, client in enumerate(clients))))
    return len(clients) * max(5, calls // 10) / seconds


async def push(hub: Server, send_one: Any, times: int) -> float:
    """From the start of the sender's call to the event at a listener, in ms."""
    samples = []
    async with (
        httpx.AsyncClient(base_url=hub.url, timeout=60) as client,
        client.stream("GET", "/api/v1/stream?type=message.created") as answer,
    ):
        lines = answer.aiter_lines()
        while not (await anext(lines)).startswith("id: "):
            pass
        for _ in range(max(5, times)):
            started = time.perf_counter()
            sending = asyncio.create_task(send_one())
            while not (await anext(lines)).startswith("data: "):
                pass
            samples.append(time.perf_counter() - started)
            await sending
            await asyncio.sleep(0.02)
    return statistics.median(samples) * 1000


class parked_waits:  # reads as the function it is
    """500 waits of other clients, parked on what does not happen."""

    def __init__(self, hub: Server, rest: httpx.AsyncClient, project: str) -> None:
        self.rest = rest
        self.client = httpx.AsyncClient(base_url=hub.url, timeout=90, limits=httpx.Limits(max_connections=PARKED))
        self.wait = {
            "project_root": project,
            "agent_id": "agent-0",
            "stream": "workspace",
            "filters": {"type": "never"},
            "timeout_seconds": 86_400,
        }

    async def __aenter__(self) -> None:
        post = self.client.post
        self.tasks = [asyncio.create_task(post(_operation("event_wait"), json=self.wait)) for _ in range(PARKED)]
        while f"nexus_parked_waits {PARKED}.0" not in (await self.rest.get("/metrics")).text:
            await asyncio.sleep(0.1)

    async def __aexit__(self, *_: Any) -> None:
        for task in self.tasks:
            task.cancel()
        await self.client.aclose()


class Server:
    """A server process."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        self.process = process
        self.url = url

    def cpu_seconds(self) -> float:
        """What it has used so far, with the processes that it started and that still run."""
        own = psutil.Process(self.process.pid)
        times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
        return sum(each.user + each.system for each in times)


@contextmanager
def running(command: list[str], home: Path) -> Iterator[Server]:
    """A server on a free port, once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environ = {**os.environ, "NEXUS_HOME": str(home), "NEXUS_MAX_WAIT_TIMEOUT_SECONDS": "600"}
    process = subprocess.Popen([sys.executable, *command, str(port)], cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
    try:
        server = Server(process, f"http://127.0.0.1:{port}")
        while True:
            try:
                httpx.get(f"{server.url}/healthz")
                break
            except httpx.TransportError:
                if process.poll() is not None:
                    sys.exit("the server did not start")
                time.sleep(0.2)
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def key(rest: httpx.AsyncClient, agent_id: str) -> str:
    """A new agent's key."""
    answer = await rest.post(_operation("agent_create"), json={"agent_id": agent_id})
    made: str = answer.json()["data"]["api_key"]
    return made


async def send(client: Client, project: str, sender: str = "agent-0") -> None:
    """One message to one recipient."""
    message = {"from_agent_id": sender, "subject": "s", "body": "b"}
    target = {"strategy": "direct", "agent_id": "agent-1"}
    result = await client.call_tool("message_create", {"project_root": project, **message, "target": target})
    assert not result.is_error, result


def table(figures: dict[str, dict[str, float]]) -> str:
    """The figures for people."""
    rows = [f"{'median in ms, unless it says otherwise':44}" + "".join(f"{server:>12}" for server in figures)]
    for what in next(iter(figures.values())):
        rows.append(f"{what:44}" + "".join(f"{values[what]:12.2f}" for values in figures.values()))
    return "\n".join(rows)


def _operation(name: str) -> str:
    return f"/api/v1/operations/{name}"


async def _seconds(call: Awaitable[Any]) -> float:
    started = time.perf_counter()
    await call
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
