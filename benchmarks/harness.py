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
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil

from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
SERVE = ("manage.py", "serve", "--port")
NOOP = ("-m", "benchmarks.noop_server")
WARM_UP = 5  # first calls of a kind, not counted
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
    return "\n".join(
        "  ".join([label.ljust(first), *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))])
        for label, *cells in rows
    )


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def spread(times: Iterable[float]) -> dict[str, float]:
    """Median, 99th percentile and longest of times in s, in ms; not a number where there is none."""
    ordered = sorted(times) or [float("nan")]
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: ordered[min(int(len(ordered) * of), len(ordered) - 1)] * 1000 for name, of in shares.items()}


def seconds(act: Callable[[], object]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


def raise_file_limit() -> None:
    """Let this process hold as many connections as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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


@contextmanager
def running(home: Path, command: Iterable[str] = SERVE, **environ: str) -> Iterator[Server]:
    """A server on a free port, once it answers; killed at the end. Its command ends where the port's number goes."""
    port = free_port()
    own = {"PYTHONPATH": str(ROOT), "NEXUS_HOME": str(home), "NEXUS_MAX_WAIT_TIMEOUT_SECONDS": "600"}
    process = subprocess.Popen(
        [sys.executable, *command, str(port)],
        cwd=ROOT,
        env={**os.environ, **own, **environ},
        stdout=subprocess.DEVNULL,
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


def sender(hub: Server, scratch: Path, number: int, *, project: int | None = None) -> Callable[[], None]:
    """What sends one message with every call, in a workspace of its own or that of a project.

    It keeps one connection and does little else, because it runs on the hub's cores.
    """
    connection = HTTPConnection(urlsplit(hub.url).netloc, timeout=60)
    headers = {"Content-Type": "application/json"}

    def call(name: str, arguments: bytes) -> Any:
        connection.request("POST", f"/api/v1/operations/{name}", arguments, headers)
        answer = json.loads(connection.getresponse().read())
        assert answer["ok"], answer
        return answer["data"]

    agent = f"agent-{number}"
    of_agent = json.dumps({"agent_id": agent}).encode()
    call("agent_register", of_agent)
    headers["Authorization"] = f"Bearer {call('agent_key_issue', of_agent)['api_key']}"
    root = scratch / f"project-{number if project is None else project}"
    letter = {"project_root": str(root), "from_agent_id": agent, "subject": "s", "body": "b"}
    target = {"strategy": "direct", "agent_id": agent}
    return partial(call, "message_create", json.dumps({**letter, "target": target}).encode())


def sent(senders: Sequence[Callable[[], None]], lasting: float) -> int:
    """Let senders send at once for so many seconds; return how many calls came to an end."""
    end = time.perf_counter() + lasting

    def work(send: Callable[[], None]) -> int:
        count = 0
        while time.perf_counter() < end:
            send()
            count += 1
        return count

    with ThreadPoolExecutor(len(senders)) as pool:
        return sum(pool.map(work, senders))
