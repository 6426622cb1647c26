"""The figures of agents on stdio, each as a ratio to something measured in the same run.

python -m benchmarks.stdio              # empty and filled store, side by side
python -m benchmarks.stdio --quick --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = "import django, django.db.models, mcp.server.lowlevel, mcp.server.stdio"
FULL = {"messages": 100_000, "events": 200_000, "handoffs": 5_000}
QUICK = {"messages": 2_000, "events": 4_000, "handoffs": 100}
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
    homes = {name: scratch / name for name in ("empty", "filled")}
    project = scratch / "project"
    project.mkdir()
    for name, home in homes.items():
        rows = history if name == "filled" else {}
        filling = f"from pathlib import Path; from benchmarks.fill import fill; fill(Path({str(project)!r}), **{rows})"
        setup = f"import django; django.setup(); from coordination import store; store.prepare(); {filling}"
        environ = {**os.environ, "NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "nexus_site.settings_agent"}
        subprocess.run([sys.executable, "-c", setup], cwd=ROOT, env=environ, check=True)
    samples = asyncio.run(_calls(homes, project, calls))
    samples |= _starts(homes["empty"], max(5, calls // 40))
    return _figures(samples) | {"calls": calls, "history": history}


async def _calls(homes: dict[str, Path], project: Path, calls: int) -> Samples:
    samples: Samples = {}
    async with AsyncExitStack() as stack:
        noop = await stack.enter_async_context(
            Client(
                stdio_client(
                    StdioServerParameters(command=sys.executable, args=[str(ROOT / "benchmarks/noop_server.py")])
                )
            )
        )
        nexus = {
            name: await stack.enter_async_context(Client(stdio_client(_runmcp(home)))) for name, home in homes.items()
        }
        waiter = await stack.enter_async_context(Client(stdio_client(_runmcp(homes["empty"]))))
        for client in nexus.values():
            for agent_id in ("sender", "receiver"):
                await _call(client, "agent_register", agent_id=agent_id)
        for _ in range(calls + 5):  # in turn, so that a slow moment of the machine hits all alike
            await _timed(samples, "noop", noop.call_tool("noop", {}))
            for name, client in nexus.items():
                await _round(samples, name, client, str(project))
        for _ in range(max(20, calls // 8)):
            await _wake(samples, nexus["empty"], waiter, str(project))
    return {kind: values[5:] for kind, values in samples.items()}  # the first calls warm up


async def _round(samples: Samples, store: str, client: Client, project: str) -> None:
    """One message_create, one pull and acknowledgement of it, one cycle of a handoff."""
    direct = {"strategy": "direct", "agent_id": "receiver"}
    await _timed(
        samples,
        f"message_create/{store}",
        _call(
            client, "message_create", project_root=project, from_agent_id="sender", subject="s", body="b", target=direct
        ),
    )

    async def receive() -> None:
        pulled = await _call(client, "inbox_pull", agent_id="receiver")
        ids = [message["message_id"] for message in pulled["messages"]]
        await _call(client, "inbox_ack", agent_id="receiver", message_ids=ids)

    async def hand_over() -> None:
        made = await _call(
            client,
            "handoff_create",
            project_root=project,
            from_agent_id="sender",
            target={"strategy": "broadcast"},
            visibility="public",
            payload="work",
        )
        of = {"project_root": project, "handoff_id": made["handoff_id"], "agent_id": "receiver"}
        await _call(client, "handoff_claim", **of)
        await _call(client, "handoff_complete", **of, result="done")

    await _timed(samples, f"inbox_pull + inbox_ack/{store}", receive())
    await _timed(samples, f"handoff cycle/{store}", hand_over())
    await _call(client, "inbox_pull", agent_id="sender")  # the notice of the outcome
    await _timed(samples, f"inbox_count/{store}", _call(client, "inbox_count", agent_id="receiver"))


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
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "0"}}
    lines = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "inbox_count", "arguments": {"agent_id": "receiver"}},
        },
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    samples: Samples = {"first answer": [], "imports": []}
    for _ in range(times):
        started = time.perf_counter()
        parameters = _runmcp(home)
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
            samples["imports"].append(time.perf_counter() - started)
    return samples


def _figures(samples: Samples) -> dict[str, Any]:
    median = {kind: statistics.median(values) * 1000 for kind, values in samples.items()}
    kinds = [kind.removesuffix("/empty") for kind in median if kind.endswith("/empty")]
    ratios = {f"{kind} to a no-op call": median[f"{kind}/empty"] / median["noop"] for kind in kinds}
    ratios |= {f"{kind}, filled to empty": median[f"{kind}/filled"] / median[f"{kind}/empty"] for kind in kinds}
    ratios["first answer to bare imports"] = median["first answer"] / median["imports"]
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


def _runmcp(home: Path) -> StdioServerParameters:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "NEXUS_HOME": str(home)}
    return StdioServerParameters(command=sys.executable, args=["-m", "nexus_site", "runmcp"], env=environ)


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
