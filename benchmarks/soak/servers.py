"""The processes of the soak: a hub that restarts on its port, and clients of it or of servers of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, TextIO

import httpx
import psutil
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from benchmarks.harness import ROOT
from tests.ports import free_port

START_SECONDS = 180  # a bound against hanging, not a figure


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
        self.ready = False  # is the hub, and has what it needs in memory

    @property
    def environ(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(__file__).parent / "clock"), str(ROOT)])
        store = {"NEXUS_DATABASE_URL": self.database_url} if self.database_url else {}
        places = {"NEXUS_HOME": str(self.home), "NEXUS_SOAK_CLOCK": str(self.clock)}
        return {**os.environ, "PYTHONPATH": path, **places, **store}

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
        self.ready = False
        self.hub = subprocess.Popen(command, env=self.environ, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.hub.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the hub did not start; see {self.log.name}")
            time.sleep(0.1)
        self.ready = True

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

    @contextlib.asynccontextmanager
    async def over_http(self, key: str) -> AsyncIterator[Client]:
        """A client of the hub."""
        async with (
            create_mcp_http_client(headers={"authorization": f"Bearer {key}"}) as http,
            Client(streamable_http_client(f"{self.url}/mcp", http_client=http)) as client,
        ):
            yield client

    @contextlib.asynccontextmanager
    async def over_stdio(self, key: str | None = None) -> AsyncIterator[Client]:
        """A client with a server process of its own."""
        bound = {} if key is None else {"NEXUS_API_KEY": key}
        process = StdioServerParameters(
            command=sys.executable, args=["-m", "nexus_site", "runmcp"], env={**self.environ, **bound}
        )
        async with Client(stdio_client(process, errlog=self.log)) as client:
            yield client

    def stdio_processes(self) -> Iterator[tuple[psutil.Process, str]]:
        """The `runmcp` processes alive, each with its agent's key."""
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if "runmcp" in process.cmdline() and (key := process.environ().get("NEXUS_API_KEY")):
                    yield process, key

    def close(self) -> None:
        """Kill what still runs; who plays this may have children of its own."""
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if process.environ().get("NEXUS_HOME") == str(self.home):
                    process.kill()
        self.log.close()
