"""The processes of the soak, and what happens to them while the team works.

They are a hub that restarts on its port, and clients of it or of servers of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TextIO

import httpx
import psutil
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.acceptance.hub import ROOT, START_SECONDS
from tests.acceptance.soak.agents import Ledger
from tests.ports import free_port

KILL_SECONDS = 5.0
HOUR = 3600
FULL_CALLS = 20  # calls that must meet the full disk before it is freed
FULL_SECONDS = 60  # it is freed then in any case


@contextlib.asynccontextmanager
async def over_http(url: str, key: str) -> AsyncIterator[Client]:
    """A client of a hub over MCP, with an agent's key."""
    async with (
        create_mcp_http_client(headers={"authorization": f"Bearer {key}"}) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield client


class Servers:
    """Everything started over one home, and one PostgreSQL database if given; `log` is what the processes print."""

    def __init__(self, scratch: Path, database_url: str | None = None) -> None:
        self.home, self.project = scratch / "home", str(scratch / "project")
        self.database_url = database_url
        self.clock = scratch / "clock"
        self.set_clock(0)
        self.log: TextIO = (scratch / "log").open("a")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.hub: subprocess.Popen[bytes] | None = None

    @property
    def environ(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(__file__).parent / "clock"), str(ROOT)])
        store = {"NEXUS_DATABASE_URL": self.database_url} if self.database_url else {}
        directories = {"NEXUS_HOME": str(self.home), "NEXUS_SOAK_CLOCK": str(self.clock)}
        return {**os.environ, "PYTHONPATH": path, **directories, **store}

    @contextlib.contextmanager
    def store(self) -> Iterator[Any]:
        """A connection past Nexus to the store: `execute`, as both databases' drivers have it."""
        if self.database_url:
            import psycopg

            with psycopg.connect(self.database_url) as connection:
                yield connection
        else:
            with contextlib.closing(sqlite3.connect(self.home / "nexus.db")) as file:
                yield file

    def set_clock(self, offset: float) -> None:
        """Move the clock of every process, also of those that start later."""
        new = self.clock.with_suffix(".new")
        new.write_text(str(offset))
        new.replace(self.clock)

    def start_hub(self, *flags: str) -> None:
        """Start the hub and return once it is ready."""
        command = [sys.executable, "-m", "nexus_site", "serve", "--port", str(self.port), *flags]
        self.hub = subprocess.Popen(command, env=self.environ, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.hub.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the hub did not start; see {self.log.name}")
            time.sleep(0.1)

    def answers(self, path: str = "/readyz") -> bool:
        """Whether the hub answers this page with success."""
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(self.url + path, timeout=5).is_success
        return False

    def stop_hub(self, number: signal.Signals) -> int:
        """Signal the hub and get its exit code."""
        assert self.hub is not None
        self.hub.send_signal(number)
        return self.hub.wait(START_SECONDS)

    def issue_key(self, agent_id: str) -> str:
        """Create an agent over REST, as the operator of this machine; its key."""
        answer = httpx.post(f"{self.url}/api/v1/agents", json={"agent_id": agent_id}, timeout=30)
        key: str = answer.raise_for_status().json()["data"]["api_key"]
        return key

    def over_http(self, key: str) -> AbstractAsyncContextManager[Client]:
        """A client of the hub."""
        return over_http(self.url, key)

    @contextlib.asynccontextmanager
    async def over_stdio(self, key: str | None = None) -> AsyncIterator[Client]:
        """A client with a server process of its own."""
        bound = {} if key is None else {"NEXUS_API_KEY": key}
        process = StdioServerParameters(
            command=sys.executable, args=["-m", "nexus_site", "runmcp"], env={**self.environ, **bound}
        )
        async with Client(stdio_client(process, errlog=self.log)) as client:
            yield client

    def stdio_processes(self) -> list[psutil.Process]:
        """The `runmcp` processes of agents that are alive."""
        found = []
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if "runmcp" in process.cmdline() and process.environ().get("NEXUS_API_KEY"):
                    found.append(process)
        return found

    def close(self) -> None:
        """Kill what still runs; who plays this may have children of its own."""
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.environ().get("NEXUS_HOME") == str(self.home):
                    process.kill()
        self.log.close()


class Troubles:
    """The schedule, and what was done so far."""

    def __init__(self, servers: Servers, ledger: Ledger, seconds: float) -> None:
        self.servers, self.ledger, self.seconds = servers, ledger, seconds
        self.done: list[str] = []
        self.kills = 0
        self.started = time.monotonic()

    async def happen(self) -> None:
        """All of it, in `seconds`."""
        killing = asyncio.create_task(self._kill())
        plan = (
            (0.12, self._move_clock(HOUR)),
            (0.20, self._move_clock(0)),
            (0.28, self._move_clock(-HOUR)),
            (0.36, self._move_clock(0)),
            (0.42, self._restart_hub(signal.SIGTERM)),
            (0.55, self._fill_disk()),
            (0.75, self._restart_hub(signal.SIGKILL)),
        )
        for moment, trouble in plan:
            await self._until(moment)
            await trouble
        await self._until(1)
        killing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await killing

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(0, self.started + moment * self.seconds - time.monotonic()))

    async def _kill(self) -> None:
        """A stdio server every few seconds, while its agent is at work."""
        while True:
            await asyncio.sleep(KILL_SECONDS)
            if victims := self.servers.stdio_processes():
                random.choice(victims).kill()
                self.kills += 1

    async def _move_clock(self, offset: int) -> None:
        self.servers.set_clock(offset)
        self.done.append(f"clock moved to {offset // HOUR:+} h")

    async def _restart_hub(self, number: signal.Signals) -> None:
        started = time.monotonic()
        code = await asyncio.to_thread(self.servers.stop_hub, number)
        stopped = time.monotonic()
        if number == signal.SIGTERM and code:
            self.ledger.violations.append(f"the hub ended with exit code {code} on SIGTERM")
        await asyncio.to_thread(self.servers.start_hub)
        ready = time.monotonic()
        self.done.append(f"hub ended by {number.name} in {stopped - started:.1f} s, back in {ready - stopped:.1f} s")

    async def _fill_disk(self) -> None:
        """Leave nothing of the small file system until clients have met that, then free it."""
        if not self.servers.home.is_mount():
            why = "it is the server's" if self.servers.database_url else "this user may not mount a small file system"
            self.done.append(f"disk not filled: {why}")
            return
        ballast, before = self.servers.home / "ballast", self.ledger.refused["DB_ERROR disk_full"]
        self.ledger.disk_is_full = True
        deadline = time.monotonic() + FULL_SECONDS
        while self.ledger.refused["DB_ERROR disk_full"] - before < FULL_CALLS and time.monotonic() < deadline:
            await asyncio.to_thread(_fill, ballast)  # again and again: a checkpoint may have given some back
            await asyncio.sleep(0.2)
        met = self.ledger.refused["DB_ERROR disk_full"] - before
        if not met:
            self.ledger.violations.append("the disk was filled and no call met it")
        if await asyncio.to_thread(self.servers.answers):
            self.ledger.violations.append("/readyz says ready on a full disk")
        ballast.unlink()
        await asyncio.sleep(1)  # for the answers under way
        self.ledger.disk_is_full = False
        self.done.append(f"disk filled and freed: {met} calls refused")


def _fill(ballast: Path) -> None:
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 65536)
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 512)
