"""What every benchmark is made of: its command line and table, the processes that it measures, their clients and times.

A benchmark is a module that declares a `Benchmark` and ends by playing it. What is compared takes turns, so that a slow
moment of the machine hits all alike.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
RUNMCP = ("-m", "nexus_site", "runmcp")
SERVE = ("manage.py", "serve", "--port")
NOOP = ("-m", "benchmarks.noop_server")
STANDALONE = {"NEXUS_STANDALONE": "1"}  # the environment of a process that uses no hub
WARM_UP = 5  # first calls of a kind, not counted
HELLO: list[dict[str, Any]] = [  # the handshake, line by line
    {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "benchmark", "version": "0"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]
Figures = dict[str, dict[str, Any]]  # by column, what each line shows there


@dataclass(frozen=True)
class Benchmark:
    """A question and the function that measures its answer.

    `arguments` are further options of its command line, as argparse takes them, and `quick` their values with --quick.
    `faults` says, of the figures, what must not be: its lines end the command with exit code 1.
    """

    name: str
    about: str | None
    measure: Callable[[Path, argparse.Namespace], Figures | Awaitable[Figures]]
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    faults: Callable[[Figures, argparse.Namespace], list[str]] = lambda figures, options: []

    def main(self) -> None:
        """Play it as the command line says, in a directory of its own, and print its table."""
        parser = argparse.ArgumentParser(
            prog=f"python -m benchmarks.{self.name}",
            description=self.about,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, given in self.arguments.items():
            parser.add_argument(name, **given)
        parser.add_argument("--quick", action="store_true", help="measure little, to see that it works")
        parser.add_argument("--json", action="store_true", help="print one JSON object: by column, by line")
        options = parser.parse_args()
        if options.quick:
            vars(options).update(self.quick)
        with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch:
            figures = self.measure(Path(scratch).resolve(), options)
            if inspect.iscoroutine(figures):
                figures = asyncio.run(figures)
        print(json.dumps(figures, indent=2) if options.json else table(figures))  # type: ignore[arg-type]
        sys.exit("\n".join(self.faults(figures, options)) or 0)  # type: ignore[arg-type]


def amount(default: float, help: str) -> dict[str, Any]:
    """An option that takes a number like its default."""
    return {"type": type(default), "default": default, "help": f"{help} (default: %(default)s)"}


def table(figures: Figures) -> str:
    """The figures for people: a line for each name, a column for each thing compared."""
    lines = dict.fromkeys(line for column in figures.values() for line in column)
    rows = [["", *figures], *([line, *(_cell(column.get(line)) for column in figures.values())] for line in lines)]
    first, *widths = (max(map(len, cells)) for cells in zip(*rows, strict=True))
    if len(widths) == 1:
        widths = [0]  # its cells may be sentences, and nothing stands beside them
    return "\n".join(
        "  ".join([label.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
        for label, *cells in rows
    )


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def percentile(times: Iterable[float], share: float) -> float:
    """The time that this share of them does not exceed; not a number where there is none."""
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else float("nan")


def spread(times: Iterable[float]) -> dict[str, float]:
    """Median, 99th percentile and longest of times in s, in ms."""
    ordered = sorted(times)
    return {name: percentile(ordered, share) * 1000 for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}


def seconds(act: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def compile_once(scratch: Path) -> None:
    """Have the processes that start from here on keep their compiled modules in `scratch`, as installed programs do."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = str(scratch / "compiled")


def raise_file_limit() -> None:
    """Let this process hold as many connections as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment of a process over a home."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "NEXUS_HOME": str(home), **more}


def set_up(home: Path, settings: str = "nexus_site.settings_agent") -> None:
    """Make this process one of Nexus, over a home whose store is made if need be."""
    os.environ |= {"NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": settings}
    import django

    django.setup()
    del os.environ["DJANGO_SETTINGS_MODULE"]  # the processes that are started choose their own
    from nexus.core.database.store import store

    store().prepare()


@dataclass
class Server:
    """A server process."""

    process: subprocess.Popen[Any]
    url: str

    def cpu_seconds(self) -> float:
        """What it has used so far, with the processes that it started and that still run."""
        own = psutil.Process(self.process.pid)
        times = [process.cpu_times() for process in (own, *own.children(recursive=True))]
        return sum(each.user + each.system for each in times)

    def memory(self) -> float:
        """What it holds of the machine's memory, in MiB."""
        return float(psutil.Process(self.process.pid).memory_info().rss / 2**20)

    def open_files(self) -> int:
        """How many files and connections it has open."""
        return psutil.Process(self.process.pid).num_fds()


@contextmanager
def running(home: Path, command: Iterable[str] = SERVE, **environ: str) -> Iterator[Server]:
    """A server on a free port, once it answers; killed at the end. Its command ends where the port's number goes."""
    port = free_port()
    environ = {"NEXUS_MAX_WAIT_TIMEOUT_SECONDS": "600", **environ}
    process = subprocess.Popen(
        [sys.executable, *command, str(port)], cwd=ROOT, env=environment(home, **environ), stdout=subprocess.DEVNULL
    )
    try:
        server = Server(process, f"http://127.0.0.1:{port}")
        while not _answers(server):
            if process.poll() is not None:
                sys.exit("the server did not start")
            time.sleep(0.2)
        yield server
    finally:
        process.kill()
        process.wait()


def _answers(server: Server) -> bool:
    try:
        httpx.get(f"{server.url}/healthz", timeout=60)
    except httpx.TransportError:
        return False
    return True


async def key(operator: httpx.AsyncClient, agent_id: str) -> str:
    """A new agent's key."""
    answer = await operator.post("/api/v1/operations/agent_create", json={"agent_id": agent_id})
    made: str = answer.json()["data"]["api_key"]
    return made


class StdioCalls:
    """Servers on stdio, their clients, and how long calls took, beside the bare SDK's call that does nothing.

    Each server ends with the block.
    """

    def __init__(self, scratch: Path) -> None:
        self._stack, self._scratch = AsyncExitStack(), scratch
        self._samples: dict[str, list[float]] = {}

    async def __aenter__(self) -> StdioCalls:
        await self._stack.__aenter__()
        self._noop = await self.connect(self._scratch, command=NOOP)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.__aexit__(*error)

    async def connect(self, home: Path, *flags: str, command: Iterable[str] = RUNMCP) -> Client:
        """A client of a server with its store in `home`."""
        server = StdioServerParameters(command=sys.executable, args=[*command, *flags], env=environment(home))
        return await self._stack.enter_async_context(Client(stdio_client(server)))

    async def time(self, kind: str, call: Awaitable[Any]) -> None:
        """Await a call that does nothing, then this one, and note how long each took."""
        for what, awaited in (("no-op", self._noop.call_tool("noop", {})), (kind, call)):
            started = time.perf_counter()
            await awaited
            self.note(what, time.perf_counter() - started)

    def note(self, kind: str, took: float) -> None:
        self._samples.setdefault(kind, []).append(took)

    def figures(self) -> Figures:
        """The median of each kind in ms, and as so many calls that do nothing."""
        median = {kind: statistics.median(times[WARM_UP:]) * 1000 for kind, times in self._samples.items()}
        return {"median ms": median, "no-ops": {kind: value / median["no-op"] for kind, value in median.items()}}


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers."""
    envelope = (await client.call_tool(tool, arguments)).structured_content
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data
