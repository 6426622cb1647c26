"""What one caller's load costs the others: one key floods, another measures, beside a quiet run of the same minute.

python -m benchmarks.fairness
python -m benchmarks.fairness --row calls --row waits
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.harness import ROOT, Benchmark, Figures, Server, environment, key, raise_file_limit, running
from mcp_bridge import relay
from nexus.core.config import resolve
from nexus_site.launch import APPS

WAIT_SECONDS = 30  # of the parked waits, each from its own arrival on
CONNECTED_SECONDS = 3  # between the last connection and the first wait, for a look at what connections alone cost
ARRIVING_SECONDS = 10  # over which waits arrive that end together
AFTER_SECONDS = 60  # behind which memory is looked at again
PACE_SECONDS = 0.02  # between two measured calls
QUIET_SECONDS = 5  # of a quiet run
MOST_RELAYS = 2000  # that a hub takes
SLOW_GLOB = "/".join(["**", "*a*a*a*a*"] * 12)
FOREIGN_TASKS = 5000  # some 4 MB
FLOOD = "--flood"  # this program is a flooding client then
FILES = 500  # long paths that a slow glob is compared with


@dataclass
class Scene:
    """The hub, the keys of who floods and who measures, and how large the load is."""

    hub: Server
    home: Path
    project: Path
    flooding: str
    measuring: str
    calls: int


Row = Callable[[Scene, dict[str, Any]], AbstractAsyncContextManager[None]]


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """A column for each row: reads and sends of another key, quiet and loaded, in ms, and what the load itself met."""
    raise_file_limit()
    return {name: asyncio.run(beside(scratch / name, ROWS[name], options.calls)) for name in options.row or ROWS}


async def beside(scratch: Path, load: Row, calls: int) -> dict[str, Any]:
    """The figures of one load."""
    home, project = scratch / "home", scratch / "project"
    project.mkdir(parents=True)
    with running(home) as hub:
        async with httpx.AsyncClient(base_url=hub.url, timeout=120) as operator:
            flooding, measuring = await key(operator, "flooding"), await key(operator, "measuring")
        setting = Scene(hub, home, project, flooding, measuring, calls)
        figures: dict[str, Any] = {}
        bearer = {"Authorization": f"Bearer {measuring}"}
        async with httpx.AsyncClient(base_url=hub.url, timeout=120, headers=bearer) as client:
            await _timed(client, project, asyncio.Event(), 0.5)  # warms up
            quiet = await _timed(client, project, asyncio.Event(), QUIET_SECONDS)
            over = asyncio.Event()
            async with load(setting, figures):
                timing = asyncio.create_task(_timed(client, project, over))
                await asyncio.sleep(0)
                await figures.pop("loaded while")
                over.set()
                loaded = await timing
            if (later := figures.pop("later", None)) is not None:
                figures |= await later()
    both = {f"{what}, {when}": took[what] for what in quiet for when, took in (("quiet", quiet), ("loaded", loaded))}
    met = {f"load, {what}": value for what, value in figures.pop("load", {}).items()}
    return both | met | figures


async def _timed(
    client: httpx.AsyncClient, project: Path, over: asyncio.Event, seconds: float = 600
) -> dict[str, float]:
    """Reads and sends in turn until it is over: their median and longest time (ms)."""
    samples: dict[str, list[float]] = {"read": [], "send": []}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not (over.is_set() and samples["send"]):
        for kind, (name, arguments) in _calls(project).items():
            started = time.perf_counter()
            answer = await client.post(f"/api/v1/operations/{name}", json=arguments)
            samples[kind].append((time.perf_counter() - started) * 1000)
            answer.raise_for_status()
            await asyncio.sleep(PACE_SECONDS)
    figures: dict[str, float] = {}
    for kind, values in samples.items():
        values.sort()
        figures |= {f"{kind} p50": values[len(values) // 2], f"{kind} max": values[-1]}
    return {what: round(value, 1) for what, value in figures.items()}


def _calls(project: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    target = {"strategy": "direct", "agent_id": "measuring"}
    letter = {"project_root": str(project), "from_agent_id": "measuring", "subject": "s", "body": "b"}
    return {
        "read": ("inbox_peek", {"agent_id": "measuring"}),
        "send": ("message_create", {**letter, "target": target}),
    }


def _flooder(
    setting: Scene, name: str, arguments: Mapping[str, Any], calls: int, **more: Any
) -> subprocess.Popen[bytes]:
    """A process that makes `calls` calls at once, or as `more` says, and prints how they ended."""
    what = {
        "url": setting.hub.url,
        "key": setting.flooding,
        "path": f"/api/v1/{name}",
        "arguments": arguments,
        "calls": calls,
        **more,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.fairness", FLOOD, json.dumps(what)], cwd=ROOT, stdout=subprocess.PIPE
    )


async def _ended(process: subprocess.Popen[bytes], figures: dict[str, Any], seconds: float = 300) -> None:
    out, _ = await asyncio.to_thread(partial(process.communicate, timeout=seconds))
    figures["load"] = json.loads(out)


async def _flood(what: dict[str, Any]) -> None:
    """Open every connection, `pause`, then send every call: at once, or `over` so many seconds, each to wait until the
    same second. What each was answered, and when (s): counted from the beginning, or from its own end."""
    address = urlsplit(what["url"])
    over = what.get("over", 0)

    def request(wait: int) -> bytes:
        body = json.dumps(what["arguments"] | ({"timeout_seconds": wait} if over else {})).encode()
        head = (
            f"POST {what['path']} HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {what['key']}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body

    streams = [await asyncio.open_connection(address.hostname, address.port) for _ in range(what["calls"])]
    await asyncio.sleep(what.get("pause", 0))
    started = time.perf_counter()

    async def call(number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, float]:
        begins = over * number / what["calls"]
        wait = WAIT_SECONDS - int(begins)
        await asyncio.sleep(begins)
        end = time.perf_counter() + wait if over else started
        writer.write(request(wait))
        line = await reader.readline()
        seconds = time.perf_counter() - end
        await reader.read()
        writer.close()
        return line.split(b" ")[1].decode() if line else "none", seconds

    answers = await asyncio.gather(*(call(number, *stream) for number, stream in enumerate(streams)))
    statuses: dict[str, int] = {}
    for status, _ in answers:
        statuses[status] = statuses.get(status, 0) + 1
    times = sorted(seconds for _, seconds in answers)
    times_by_name = {"first s": times[0], "p50 s": times[len(times) // 2], "last s": times[-1]}
    counted = {"answers": ", ".join(f"{count} x {status}" for status, count in statuses.items())}
    print(json.dumps(counted | {what: round(seconds, 2) for what, seconds in times_by_name.items()}))


@asynccontextmanager
async def calls_at_once(setting: Scene, figures: dict[str, Any]) -> AsyncIterator[None]:
    """One key's calls, all at once."""
    process = _flooder(setting, "operations/inbox_peek", {"agent_id": "flooding"}, setting.calls)
    figures["loaded while"] = _ended(process, figures)
    yield


@asynccontextmanager
async def parked_waits(setting: Scene, figures: dict[str, Any]) -> AsyncIterator[None]:
    """One key's waits: they arrive together, and expire together; then others that arrive one by one and are to end in
    the same second, so that it is known of each how late it ended."""
    figures["memory before MB"] = setting.hub.memory()
    arguments = {
        "project_root": str(setting.project),
        "agent_id": "flooding",
        "stream": "workspace",
        "filters": {"type": "never"},
        "timeout_seconds": WAIT_SECONDS,
    }
    process = _flooder(setting, "operations/event_wait", arguments, setting.calls, pause=CONNECTED_SECONDS)

    async def followed() -> None:
        first = arrived = None
        files = setting.hub.open_files() + setting.calls
        while setting.hub.open_files() < files and process.poll() is None:
            await asyncio.sleep(0.05)
        figures["memory connected MB"] = connected = setting.hub.memory()
        used = setting.hub.cpu_seconds()
        async with httpx.AsyncClient(base_url=setting.hub.url, timeout=120) as client:
            while arrived is None and process.poll() is None:
                parked = _parked((await client.get("/metrics")).text)
                if parked and first is None:
                    first, used = time.monotonic(), setting.hub.cpu_seconds()
                arrived = time.monotonic() if parked >= setting.calls else None
                await asyncio.sleep(0.05)
        if first and arrived:
            figures["arriving s"] = round(arrived - first, 2)
        figures["arriving, hub's CPU s"] = round(setting.hub.cpu_seconds() - used, 2)
        figures["memory parked MB"] = held = setting.hub.memory()
        each = 1024 / setting.calls
        figures["KiB each, connection"] = round((connected - figures["memory before MB"]) * each, 1)
        figures["KiB each, wait"] = round((held - connected) * each, 1)
        await _ended(process, figures)
        figures["expiring s"] = round(figures["load"]["last s"] - figures["load"]["first s"], 2)
        figures["memory at the end MB"] = setting.hub.memory()
        load = figures.pop("load")
        paced = _flooder(setting, "operations/event_wait", arguments, setting.calls, over=ARRIVING_SECONDS)
        await _ended(paced, figures)
        figures["late p50 s"], figures["late max s"] = figures["load"]["p50 s"], figures["load"]["last s"]
        figures["load"] = load

    async def later() -> dict[str, Any]:
        await asyncio.sleep(AFTER_SECONDS)
        return {f"memory {AFTER_SECONDS} s later MB": setting.hub.memory()}

    figures["loaded while"], figures["later"] = followed(), later
    yield


def _parked(metrics: str) -> int:
    line = next(line for line in metrics.splitlines() if line.startswith("nexus_parked_waits "))
    return int(float(line.split()[1]))


@asynccontextmanager
async def slow_globs(setting: Scene, figures: dict[str, Any]) -> AsyncIterator[None]:
    """Eight `files_reserve` whose globs are slow to compare with what another holds."""
    root = setting.project
    paths = ["/".join(["a" * 40 + "b"] * 5) + f"/{number}" for number in range(FILES)]
    async with httpx.AsyncClient(base_url=setting.hub.url, timeout=120) as operator:
        await key(operator, "holding")
        for start in range(0, FILES, 50):
            held = {"project_root": str(root), "agent_id": "holding", "paths": paths[start : start + 50]}
            (await operator.post("/api/v1/files/operations/files_reserve", json=held)).raise_for_status()
    wanted = {"project_root": str(root), "agent_id": "flooding", "paths": [SLOW_GLOB], "timeout_seconds": 20}
    figures["loaded while"] = _ended(_flooder(setting, "files/operations/files_reserve", wanted, 8), figures)
    yield


@asynccontextmanager
async def foreign_plan(setting: Scene, figures: dict[str, Any]) -> AsyncIterator[None]:
    """One `task_list` over a large `.nexus` file that another program wrote."""
    project = {"project_root": str(setting.project)}
    task = {"title": "t", "context": "y" * 600, "approach": "a", "acceptance": "a", "risk": "r", "plan_issue": 1}
    async with httpx.AsyncClient(base_url=f"{setting.hub.url}/api/v1/planning/operations", timeout=120) as operator:
        plan = {"topic": "t", "issues": ["i"], "research_summary": ""}
        (await operator.post("/plan_start", json=project | plan)).raise_for_status()
        (await operator.post("/task_add", json=project | task)).raise_for_status()
    file = setting.project / ".nexus/state/tasks.json"
    content = json.loads(file.read_text())
    content["tasks"] = [{**content["tasks"][0], "id": number} for number in range(1, FOREIGN_TASKS + 1)]
    file.write_text(json.dumps(content))
    figures["loaded while"] = _ended(_flooder(setting, "planning/operations/task_list", project, 1), figures)
    yield


@asynccontextmanager
async def retention(setting: Scene, figures: dict[str, Any]) -> AsyncIterator[None]:
    """A round of retention over events that are past their window."""
    with closing(sqlite3.connect(setting.home / "nexus.db", timeout=30)) as store, store:
        columns = [row[1] for row in store.execute("PRAGMA table_info(events)")]
        rest = ", ".join(f'"{name}"' for name in columns if name not in ("event_id", "created_at"))
        store.execute(
            f"INSERT INTO events ({rest}, created_at) WITH RECURSIVE n(i) AS "
            f"(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {setting.calls * 100}) "
            f"SELECT {rest}, '2020-01-01 00:00:00' FROM n, (SELECT * FROM events LIMIT 1)"
        )
    environ = environment(setting.home)
    command = [sys.executable, "-m", "nexus_site", "prune", "--events-keep-days", "0"]

    async def pruned() -> None:
        started = time.monotonic()
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
        await process.wait()
        figures["round s"] = round(time.monotonic() - started, 2)

    figures["loaded while"] = pruned()
    yield


@asynccontextmanager
async def connections(setting: Scene, figures: dict[str, Any]) -> AsyncIterator[None]:
    """Five times as many idle connections over HTTP as calls elsewhere, and as many relays as the hub takes; then one
    relay more, which gets that as its answer."""
    figures["memory before MB"] = setting.hub.memory()
    hello = relay.hello_of(resolve({"NEXUS_HOME": str(setting.home)}, {}), APPS)
    relays = min(setting.calls, MOST_RELAYS)
    held: list[Any] = []

    def relayed() -> Any:
        connection, welcome, _ = relay.connect(setting.home, hello, None)
        held.append(connection)
        return welcome

    async def opened() -> None:
        address = urlsplit(setting.hub.url)
        for _ in range(5 * setting.calls):
            held.append((await asyncio.open_connection(address.hostname, address.port))[1])
        figures["memory of HTTP MB"] = setting.hub.memory()
        for _ in range(relays):
            await asyncio.to_thread(relayed)
        figures["memory of all MB"] = setting.hub.memory()
        figures["relay KiB each"] = round((setting.hub.memory() - figures["memory of HTTP MB"]) * 1024 / relays, 1)
        figures["HTTP, relays"] = f"{5 * setting.calls}, {relays}"
        if relays == MOST_RELAYS:
            figures["one relay more"] = (await asyncio.to_thread(relayed)).get("code", "taken")
        await asyncio.sleep(QUIET_SECONDS)

    figures["loaded while"] = opened()
    try:
        yield
    finally:
        for connection in held:
            connection.close()


ROWS: dict[str, Row] = {
    "connections": connections,
    "calls": calls_at_once,
    "waits": parked_waits,
    "globs": slow_globs,
    "plan": foreign_plan,
    "retention": retention,
}


BENCHMARK = Benchmark(
    "fairness",
    __doc__,
    measure,
    {
        "--row": {"action": "append", "choices": ROWS, "help": "one load; may be given again (default: all)"},
        "--calls": {"type": int, "default": 2000, "help": "of the load (default: %(default)s)"},
    },
    quick={"calls": 100},
)
if __name__ == "__main__":
    if FLOOD in sys.argv:
        raise_file_limit()
        asyncio.run(_flood(json.loads(sys.argv[-1])))
    else:
        BENCHMARK.main()
