"""The figures of agents on stdio, each as a ratio to something measured in the same run.

python -m benchmarks.stdio              # empty and filled store, side by side
python -m benchmarks.stdio --quick --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from benchmarks.installed import compile_once

ROOT = Path(__file__).resolve().parent.parent
RUNMCP = ("-m", "nexus_site", "runmcp")
IMPORTS = "import django, django.db.models, mcp.server.lowlevel, mcp.server.stdio"
FULL = {"messages": 100_000, "events": 200_000, "handoffs": 5_000}
QUICK = {"messages": 2_000, "events": 4_000, "handoffs": 100}
RAW_WRITE = "three rows, durable, in SQLite alone"
EVENTS = 100  # in a page of the log
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
Samples = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400, help="timed calls of each kind (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer calls and a smaller history, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    calls = 30 if options.quick else options.calls
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch:
        figures = measure(Path(scratch).resolve(), calls, QUICK if options.quick else FULL)
    print(json.dumps(figures, indent=2) if options.json else table(figures))


def measure(scratch: Path, calls: int, history: dict[str, int]) -> dict[str, Any]:
    """Every figure: medians in milliseconds, and the ratios that are claimed."""
    compile_once(scratch)
    homes = {name: scratch / name for name in ("empty", "filled")}
    project = scratch / "project"
    project.mkdir()
    for name, home in homes.items():
        rows = history if name == "filled" else {}
        filling = f"from pathlib import Path; from benchmarks.fill import fill; fill(Path({str(project)!r}), **{rows})"
        setup = f"import django; django.setup(); from nexus.core.database import store; store().prepare(); {filling}"
        environ = {**os.environ, "NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "nexus_site.settings_agent"}
        subprocess.run([sys.executable, "-c", setup], cwd=ROOT, env=environ, check=True)
    samples = asyncio.run(_calls(homes, project, calls))
    samples |= _raw_writes(scratch, calls)
    samples |= _starts(homes["empty"], max(5, calls // 40))
    return _figures(samples) | {"calls": calls, "history": history}


async def _calls(homes: dict[str, Path], project: Path, calls: int) -> Samples:
    samples: Samples = {}
    async with AsyncExitStack() as stack:
        noop = await connect(stack, str(ROOT / "benchmarks/noop_server.py"), home=homes["empty"])
        nexus = {name: await connect(stack, *RUNMCP, home=home) for name, home in homes.items()}
        others = {name: await connect(stack, *RUNMCP, home=home) for name, home in homes.items()}
        for client in nexus.values():
            for agent_id in ("sender", "receiver"):
                await _call(client, "agent_register", agent_id=agent_id)
            for _ in range(EVENTS - calls):  # so that a page of the log is full
                await _hand_over(client, client, str(project))
        for kind, (prepare, act) in KINDS.items():
            for _ in range(calls + WARM_UP):  # in turn, so that a slow moment of the machine hits all alike
                await _timed(samples, f"{kind}: no-op", noop.call_tool("noop", {}))
                for name, client in nexus.items():
                    await prepare(client, others[name], str(project))
                    await _timed(samples, f"{kind}: {name}", act(client, others[name], str(project)))
        for _ in range(max(20, calls // 8) + WARM_UP):
            await _wake(samples, nexus["empty"], others["empty"], str(project))
    return {kind: values[WARM_UP:] for kind, values in samples.items()}


async def _send(client: Client, _: Client, project: str) -> None:
    letter = {"project_root": project, "from_agent_id": "sender", "subject": "s", "body": "b"}
    await _call(client, "message_create", **letter, target={"strategy": "direct", "agent_id": "receiver"})


async def _receive(client: Client, _: Client, project: str) -> None:
    pulled = await _call(client, "inbox_pull", agent_id="receiver")
    ids = [message["message_id"] for message in pulled["messages"]]
    await _call(client, "inbox_ack", agent_id="receiver", message_ids=ids)


async def _hand_over(client: Client, _: Client, project: str) -> None:
    await _hand_to_another(client, client, project)


async def _hand_to_another(client: Client, other: Client, project: str) -> None:
    offer = {"project_root": project, "from_agent_id": "sender", "visibility": "public", "payload": "work"}
    made = await _call(client, "handoff_create", **offer, target={"strategy": "broadcast"})
    of = {"project_root": project, "handoff_id": made["handoff_id"], "agent_id": "receiver"}
    await _call(other, "handoff_claim", **of)
    await _call(other, "handoff_complete", **of, result="done")


async def _read_log(client: Client, _: Client, project: str) -> None:
    place = {"project_root": project, "agent_id": "receiver", "stream": "workspace"}
    read = await _call(client, "event_get", **place, limit=EVENTS)
    assert len(read["events"]) == EVENTS


async def _count(client: Client, _: Client, project: str) -> None:
    await _call(client, "inbox_count", agent_id="receiver")


async def _nothing(client: Client, _: Client, project: str) -> None:
    pass


Step = Callable[[Client, Client, str], Awaitable[None]]  # of a process, and of another over the same store
KINDS: dict[str, tuple[Step, Step]] = {  # what goes before, untimed, and what is timed
    "message_create": (_nothing, _send),
    "inbox_pull + inbox_ack": (_send, _receive),
    "handoff cycle": (_nothing, _hand_over),
    "handoff cycle, two processes": (_nothing, _hand_to_another),
    "inbox_count": (_nothing, _count),
    "event_get of 100": (_nothing, _read_log),
}


async def _wake(samples: Samples, sender: Client, waiter: Client, project: str) -> None:
    """From the sender's call to the answer of a wait in another process."""
    place = {"project_root": project, "agent_id": "receiver", "stream": "workspace"}
    cursor = (await _call(waiter, "event_cursor", **place))["cursor"]
    waiting = asyncio.create_task(_call(waiter, "event_wait", **place, cursor=cursor, timeout_seconds=20))
    await asyncio.sleep(0.1)  # it is parked by then
    started = time.perf_counter()
    await _call(sender, "message_create", project_root=project, from_agent_id="sender", subject="s", body="b")
    assert (await waiting)["events"]
    samples.setdefault("wake in another process", []).append(time.perf_counter() - started)


def _starts(home: Path, times: int) -> Samples:
    """From the start of a process to its first answered call, against the bare imports."""
    lines = [
        *HELLO,
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "inbox_count", "arguments": {"agent_id": "receiver"}},
        },
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    samples: Samples = {"first answer": [], "bare imports": []}
    for _ in range(1 + times):
        started = time.perf_counter()
        parameters = served(*RUNMCP, home=home)
        with subprocess.Popen(
            [parameters.command, *parameters.args], env=parameters.env, text=True, stdin=-1, stdout=-1, stderr=-3
        ) as process:
            assert process.stdin and process.stdout
            process.stdin.write(text)
            process.stdin.flush()
            process.stdout.readline()
            assert '"ok' in process.stdout.readline()
            samples["first answer"].append(time.perf_counter() - started)
        started = time.perf_counter()
        with subprocess.Popen(
            [sys.executable, "-c", f"{IMPORTS}; print(1, flush=True)"], text=True, stdout=-1
        ) as process:
            assert process.stdout
            process.stdout.readline()
            samples["bare imports"].append(time.perf_counter() - started)
    return {kind: values[1:] for kind, values in samples.items()}  # the first of each compiled its modules


def _raw_writes(scratch: Path, times: int) -> Samples:
    """The least that a durable write costs on this disk: three rows in one transaction of SQLite."""
    samples: Samples = {RAW_WRITE: []}
    with closing(sqlite3.connect(scratch / "raw.db", isolation_level=None)) as store:
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("PRAGMA synchronous = FULL")
        store.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)")
        for _ in range(times):
            started = time.perf_counter()
            store.execute("BEGIN IMMEDIATE")
            for _ in range(3):
                store.execute("INSERT INTO rows (text) VALUES (?)", ["x" * 200])
            store.execute("COMMIT")
            samples[RAW_WRITE].append(time.perf_counter() - started)
    return samples


def _figures(samples: Samples) -> dict[str, Any]:
    median = {kind: statistics.median(values) * 1000 for kind, values in samples.items()}
    ratios = {f"{kind} to a no-op call": median[f"{kind}: empty"] / median[f"{kind}: no-op"] for kind in KINDS}
    ratios |= {f"{kind}, filled to empty": median[f"{kind}: filled"] / median[f"{kind}: empty"] for kind in KINDS}
    ratios["first answer to bare imports"] = median["first answer"] / median["bare imports"]
    return {
        "median_ms": {kind: round(value, 3) for kind, value in median.items()},
        "ratios": {what: round(value, 2) for what, value in ratios.items()},
    }


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    rows = [f"{figures['calls']} calls of each kind; the filled store has {figures['history']}", "", "median, ms"]
    rows += [f"  {kind:42}{value:10.3f}" for kind, value in figures["median_ms"].items()]
    rows += ["", "ratio"]
    rows += [f"  {what:42}{value:10.2f}" for what, value in figures["ratios"].items()]
    return "\n".join(rows)


async def connect(stack: AsyncExitStack, *arguments: str, home: Path) -> Client:
    """A client of a server on stdio, which Python runs with these arguments; both end with the stack."""
    return await stack.enter_async_context(Client(stdio_client(served(*arguments, home=home))))


def served(*arguments: str, home: Path) -> StdioServerParameters:
    """How such a server is started, with its store in `home`."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "NEXUS_HOME": str(home)}
    return StdioServerParameters(command=sys.executable, args=list(arguments), env=environ)


async def _call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    envelope = (await client.call_tool(tool, arguments)).structured_content
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


async def _timed(samples: Samples, kind: str, call: Any) -> None:
    started = time.perf_counter()
    await call
    samples.setdefault(kind, []).append(time.perf_counter() - started)


if __name__ == "__main__":
    main()
