"""A hub in a process of its own, as a newcomer starts it, and the clients that talk to it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests import warm
from tests.postgres import store_of

ROOT = Path(__file__).parents[2]
START_SECONDS = 180  # a bound against hanging, not a figure
SERVERS = ("daphne", "uvicorn")  # of `nexus serve --server`
Running = subprocess.Popen[str] | warm.Process


def csrf_token(browser: httpx.Client) -> str:
    """The token of the hub's own cookie, whose name is not another hub's."""
    return next(value for name, value in browser.cookies.items() if name.startswith("nexus_csrf_"))


@dataclass
class Hub:
    """A running server. `lines` is what it printed."""

    process: Running
    home: Path
    url: str
    lines: list[str] = field(default_factory=list)

    @property
    def authority(self) -> str:
        return self.url.removeprefix("http://")

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.authority.rpartition(":")
        return host, int(port)

    def call(self, name: str, toolset: str = "", /, **arguments: Any) -> dict[str, Any]:
        """An operation over REST, of the toolset at that path, as the operator of this machine; its data."""
        url = f"{self.url}/api/v1/{toolset}operations/{name}"
        envelope = httpx.post(url, json=arguments, timeout=START_SECONDS).json()
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    def parked(self) -> int:
        """How many waits are parked, listeners among them."""
        lines = httpx.get(f"{self.url}/metrics", timeout=START_SECONDS).text.splitlines()
        return int(float(next(line for line in lines if line.startswith("nexus_parked_waits ")).split()[1]))

    def key(self, agent_id: str) -> str:
        """A new agent's API key."""
        key: str = self.call("agent_create", agent_id=agent_id)["api_key"]
        return key

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the server and get its exit code."""
        self.process.send_signal(number)
        return self.process.wait(START_SECONDS)


def start(
    home: Path,
    *flags: str,
    program: Path = ROOT / "manage.py",
    command: list[str] | None = None,
    ready: str = "[nexus] Ready",
    database: str | None = None,
) -> Hub:
    """Start a server over `home` and return once it says that it is ready. Kill it when the test is over.

    Its store is the PostgreSQL database of that URL, or what this run of the suite gives every home. A command of its
    own starts cold.
    """
    store = {"NEXUS_DATABASE_URL": database} if database else store_of(home)
    environ = {**os.environ, "NEXUS_HOME": str(home), "PYTHONUNBUFFERED": "1", **store}
    environ.pop("DJANGO_SETTINGS_MODULE", None)  # the tests' own
    said: dict[str, Any] = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process: Running
    if command:
        process = subprocess.Popen(command, cwd=ROOT, env=environ, **said)
    else:
        process = warm.Process(["serve", "--port", "0", *flags], environ, program=program, **said)
    hub = Hub(process, home, "")
    arrived: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_drain, args=(process, hub.lines, arrived), daemon=True).start()
    try:
        while True:
            line = arrived.get(timeout=START_SECONDS)
            assert line is not None, "\n".join(hub.lines)
            if " MCP " in line:
                hub.url = line.split()[-1].removesuffix("/mcp")
            if ready in line:
                return hub
    except BaseException:
        process.kill()
        raise


def _drain(
    process: subprocess.Popen[str] | warm.Process, lines: list[str], arrived: queue.SimpleQueue[str | None]
) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip())
        arrived.put(line)
    arrived.put(None)


@contextmanager
def serving(home: Path, *flags: str, program: Path = ROOT / "manage.py", database: str | None = None) -> Iterator[Hub]:
    """A hub inside of the block, killed at its end."""
    hub = start(home, *flags, program=program, database=database)
    try:
        yield hub
    finally:
        hub.process.kill()
        hub.process.wait()
