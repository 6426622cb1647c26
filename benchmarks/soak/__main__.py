"""A team at work for minutes while processes are killed, the hub restarts, the disk fills and the clock moves.

python -m benchmarks.soak                     # ten minutes
python -m benchmarks.soak --seconds 60
python -m benchmarks.soak --database-url postgresql://user@host/empty_database
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Benchmark, Figures, amount
from benchmarks.soak.agents import Agent, Ledger
from benchmarks.soak.checks import grown, violations
from benchmarks.soak.servers import HOUR, Servers, Troubles

ON_STDIO, OVER_HTTP = 4, 16
PROGRESS_SECONDS = 5
CALM_SECONDS = 60  # how long the team may go on after the last trouble
SCRATCH = "NEXUS_SOAK_SCRATCH"  # tells the inner process that it is the one, and where its files are
HOME_MIB = 256
NAMESPACE = ("unshare", "--mount", "--map-root-user", "sh", "-c")
MOUNT = f'mount -t tmpfs -o size={HOME_MIB}m,mode=700 none "$0" && exec "$@"'


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """One column: what happened, and every promise that was broken."""
    report = soak(options.seconds, options.database_url)
    column: dict[str, Any] = {}
    for name, value in report.items():
        for number, item in enumerate(value if isinstance(value, list) else [value], 1):
            label = f"{name} {number}" if isinstance(value, list) else name
            column[label] = ", ".join(f"{what} {of}" for what, of in item.items()) if isinstance(item, dict) else item
    return {"soak": column}


def soak(seconds: int, database_url: str | None = None) -> dict[str, Any]:
    """Run the soak and get its report; `violations` is empty when all went as promised.

    It runs in a mount namespace of its own with the home on a small file system, which is what a full disk takes.
    Where that is not allowed, the disk stays as it is and the report says so. With a database URL the store is there,
    on a disk that is the server's.
    """
    with tempfile.TemporaryDirectory(prefix="nexus-soak-") as name:
        scratch = Path(name).resolve()
        for directory in ("home", "project"):
            (scratch / directory).mkdir(mode=0o700)
        command: tuple[str, ...] = (sys.executable, "-m", "benchmarks.soak", str(seconds))
        if database_url is None and can_mount(scratch / "home"):
            command = (*NAMESPACE, MOUNT, str(scratch / "home"), *command)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_"))}
        if database_url is not None:
            environ["NEXUS_DATABASE_URL"] = database_url
        ended = subprocess.run(command, cwd=ROOT, env={**environ, SCRATCH: str(scratch)}, stdout=-1, text=True)
        if ended.returncode:
            raise RuntimeError(f"the soak itself failed with exit code {ended.returncode}")
        report: dict[str, Any] = json.loads(ended.stdout)
        return report


def can_mount(directory: Path) -> bool:
    """Whether this user may mount a small file system in a namespace of its own."""
    probe = (*NAMESPACE, MOUNT, str(directory), "true")
    return bool(shutil.which("unshare")) and subprocess.run(probe, capture_output=True).returncode == 0


async def play(servers: Servers, seconds: int) -> dict[str, Any]:
    """The team at work under its troubles, and what came of it."""
    servers.start_hub()
    ledger = Ledger()
    team, keys = hire(servers, ledger, ON_STDIO, OVER_HTTP)
    names = list(keys)
    stop = asyncio.Event()
    troubles = Troubles(servers, ledger, seconds, spared=keys[names[0]])
    working = [asyncio.create_task(agent.live(stop)) for agent in team]
    reporting = asyncio.create_task(_report(troubles, ledger))
    await troubles.happen()
    with suppress(TimeoutError):  # a loaded machine may have let the team do little so far
        async with asyncio.timeout(CALM_SECONDS):
            while not ledger.has_each_work:
                await asyncio.sleep(0.2)
    stop.set()
    await asyncio.gather(*working)
    reporting.cancel()
    drained = await drain(servers, names)
    if code := servers.stop_hub(signal.SIGTERM):
        ledger.violations.append(f"the hub ended with exit code {code} on SIGTERM")
    memory = list(troubles.memory.values())
    return {
        "seconds": seconds,
        "agents": {"stdio": ON_STDIO, "http": OVER_HTTP},
        "troubles": [*troubles.done, f"{troubles.kills} stdio servers killed"],
        "kills": troubles.kills,
        "calls": ledger.calls,
        "calls_refused": dict(ledger.refused),
        "connections_cut": dict(ledger.cut),
        "messages_sent": len(ledger.sent),
        "messages_acknowledged": sum(map(len, ledger.acknowledged.values())),
        "messages_left_for_the_end": sum(map(len, drained.values())),
        "handoffs_won": len(ledger.won),
        "handoffs_completed": len(ledger.completed),
        "events_followed": sum(map(len, ledger.followed.values())),
        "memory": [{"process": process.name, **growth} for process in memory if (growth := grown(process))],
        "violations": list(violations(servers, ledger, drained, memory)),
    }


def hire(servers: Servers, ledger: Ledger, on_stdio: int, over_http: int) -> tuple[list[Agent], dict[str, str]]:
    """Agents with keys issued over REST, and those keys by agent."""
    names = [f"agent-{number:02}" for number in range(on_stdio + over_http)]
    keys = {name: servers.issue_key(name) for name in names}
    team = [
        Agent(
            name,
            [peer for peer in names if peer != name],
            servers.project,
            partial(servers.over_stdio if number < on_stdio else servers.over_http, keys[name]),
            ledger,
        )
        for number, name in enumerate(names)
    ]
    return team, keys


async def drain(servers: Servers, names: list[str]) -> dict[str, list[str]]:
    """What is left in every inbox once every lease, also those from when the clock was ahead, has lapsed."""
    servers.set_clock(HOUR + 300)
    left: dict[str, list[str]] = defaultdict(list)
    async with servers.over_stdio() as client:

        async def call(name: str, **arguments: Any) -> dict[str, Any]:
            envelope: dict[str, Any] = (await client.call_tool(name, arguments)).structured_content
            return dict(envelope["data"])

        for name in names:
            while messages := (await call("inbox_pull", agent_id=name, limit=200))["messages"]:
                ids = [message["message_id"] for message in messages]
                await call("inbox_ack", agent_id=name, message_ids=ids)
                left[name] += ids
    servers.set_clock(0)
    return left


async def _report(troubles: Troubles, ledger: Ledger) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        passed = time.monotonic() - troubles.started
        latest = troubles.done[-1] if troubles.done else "no trouble yet"
        print(
            f"[{passed:4.0f} s] {ledger.calls} calls, {len(ledger.sent)} messages, {len(ledger.won)} handoffs won, "
            f"{troubles.kills} servers killed, {ledger.cut.total()} connections cut; {latest}",
            file=sys.stderr,
            flush=True,
        )


def main() -> None:
    """The soak itself, inside its mount namespace: prints progress on stderr and its report as JSON on stdout."""
    logging.disable()  # the SDK tells of every connection that a kill cuts
    servers = Servers(Path(os.environ[SCRATCH]), os.environ.get("NEXUS_DATABASE_URL"))
    try:
        report = asyncio.run(play(servers, int(sys.argv[1])))
    finally:
        servers.close()
    print(json.dumps(report))


BENCHMARK = Benchmark(
    "soak",
    __doc__,
    measure,
    {
        "--seconds": amount(600, "how long the team works"),
        "--database-url": {"help": "an empty PostgreSQL database that holds the store"},
    },
    quick={"seconds": 30},
    faults=lambda figures, options: [str(of) for what, of in figures["soak"].items() if what.startswith("violations")],
)
if __name__ == "__main__":
    if SCRATCH in os.environ:
        main()
    else:
        BENCHMARK.main()
