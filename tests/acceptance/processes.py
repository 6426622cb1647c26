"""Real server processes on stdio for the tests, and real clients to talk to them."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import Any

import anyio
import httpx
from mcp.client.client import Client
from mcp.server.stdio import stdio_server

from tests import warm
from tests.acceptance.hub import START_SECONDS, Hub
from tests.postgres import store_of

ROOT = Path(__file__).parents[2]
HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "0"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a process over a home of its own, and over a database of its own where the suite uses one."""
    store = {} if "NEXUS_DATABASE_URL" in more else store_of(home)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_"))}
    return {**environ, "PYTHONPATH": str(ROOT), "NEXUS_HOME": str(home), **store, **more}


def nexus(home: Path, *arguments: str, **more: str) -> CompletedProcess[str]:
    """Run a command to its end."""
    return warm.run(arguments, environment(home, **more), timeout=START_SECONDS)


@asynccontextmanager
async def pipes(
    environ: Mapping[str, str],
    *flags: str,
    started: list[warm.Process] | None = None,
    program: Path = ROOT / "manage.py",
) -> AsyncIterator[Any]:
    """A transport of the SDK to a `runmcp` process of its own, which starts warm and is appended to `started`."""
    process = warm.Process(["runmcp", *flags], environ, stdin=PIPE, stdout=PIPE, text=True, program=program)
    assert process.stdin is not None and process.stdout is not None
    if started is not None:
        started.append(process)
    try:
        async with stdio_server(anyio.wrap_file(process.stdout), anyio.wrap_file(process.stdin)) as (read, write):
            try:
                yield read, write
            finally:
                await write.aclose()
                with suppress(BrokenPipeError):
                    process.stdin.close()  # the server ends, and with it what it says
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(process.wait, START_SECONDS)
        process.stdout.close()


def client(home: Path, *flags: str, started: list[warm.Process] | None = None, **more: str) -> Client:
    """A client of the SDK with a `runmcp` process of its own; enter it to connect."""
    return Client(pipes(environment(home, **more), *flags, started=started))


class Raw:
    """A `runmcp` process spoken to line by line, for what no client would send."""

    def __init__(self, home: Path, *flags: str, program: Path | str = warm.PROGRAM, **more: str) -> None:
        environ = environment(home, **more)
        self.process = warm.Process(
            ["runmcp", *flags], environ, stdin=PIPE, stdout=PIPE, stderr=PIPE, program=Path(program)
        )

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def greet(self) -> dict[str, Any]:
        """The handshake."""
        self.write(json.dumps(HELLO).encode())
        answer = self.read()
        self.write(json.dumps(READY).encode())
        return answer

    def call(self, name: str, arguments: Any, *, number: int = 1) -> dict[str, Any]:
        """A tool's envelope."""
        params = {"name": name, "arguments": arguments}
        self.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode())
        answer = self.read()
        assert answer["id"] == number, answer
        envelope: dict[str, Any] = answer["result"]["structuredContent"]
        return envelope


def calls_of(hub: Hub, name: str) -> int:
    """How many calls of an operation the hub has made."""
    text = httpx.get(f"{hub.url}/metrics", timeout=START_SECONDS).text
    counted = [line for line in text.splitlines() if line.startswith("nexus_calls_total{") and f'"{name}"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in counted)


def is_relayed(raw: Raw, hub: Hub, number: int = 900) -> bool:
    """Whether the hub makes a process's calls."""
    before = calls_of(hub, "nexus_info")
    assert raw.call("nexus_info", {}, number=number)["ok"]
    return calls_of(hub, "nexus_info") > before
