"""A team at work while processes are killed, the hub restarts, the disk fills and the clock moves.

`soak` starts this module as a process, which may then mount a disk of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.acceptance.hub import ROOT
from tests.acceptance.soak.agents import Agent, Ledger
from tests.acceptance.soak.checks import violations
from tests.acceptance.soak.servers import HOUR, Servers, Troubles

ON_STDIO, OVER_HTTP = 4, 16
CALM_SECONDS = 60  # how long the team may go on after the last trouble
HOME_MIB = 256
NAMESPACE = ("unshare", "--mount", "--map-root-user", "sh", "-c")
MOUNT = f'mount -t tmpfs -o size={HOME_MIB}m,mode=700 none "$0" && exec "$@"'


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
        command: tuple[str, ...] = (sys.executable, "-m", "tests.acceptance.soak", str(scratch), str(seconds))
        if database_url is None and can_mount(scratch / "home"):
            command = (*NAMESPACE, MOUNT, str(scratch / "home"), *command)
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_"))}
        if database_url is not None:
            environ["NEXUS_DATABASE_URL"] = database_url
        ended = subprocess.run(command, cwd=ROOT, env=environ, stdout=-1, text=True)
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
    names = [f"agent-{number:02}" for number in range(ON_STDIO + OVER_HTTP)]
    team = []
    for number, name in enumerate(names):
        peers = [peer for peer in names if peer != name]
        connect = partial(servers.over_stdio if number < ON_STDIO else servers.over_http, servers.issue_key(name))
        team.append(Agent(name, peers, servers.project, connect, ledger))
    stop = asyncio.Event()
    troubles = Troubles(servers, ledger, seconds)
    working = [asyncio.create_task(agent.live(stop)) for agent in team]
    await troubles.happen()
    with suppress(TimeoutError):  # a loaded machine may have let the team do little so far
        async with asyncio.timeout(CALM_SECONDS):
            while not ledger.has_each_work:
                await asyncio.sleep(0.2)
    stop.set()
    await asyncio.gather(*working)
    drained = await drain(servers, names)
    if code := servers.stop_hub(signal.SIGTERM):
        ledger.violations.append(f"the hub ended with exit code {code} on SIGTERM")
    return {
        "troubles": troubles.done,
        "kills": troubles.kills,
        "messages_sent": len(ledger.sent),
        "messages_acknowledged": sum(map(len, ledger.acknowledged.values())),
        "handoffs_completed": len(ledger.completed),
        "events_followed": sum(map(len, ledger.followed.values())),
        "violations": list(violations(servers, ledger, drained)),
    }


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


def main() -> None:
    """The soak itself, inside its mount namespace: prints its report as JSON on stdout."""
    logging.disable()  # the SDK tells of every connection that a kill cuts
    servers = Servers(Path(sys.argv[1]), os.environ.get("NEXUS_DATABASE_URL"))
    try:
        report = asyncio.run(play(servers, int(sys.argv[2])))
    finally:
        servers.close()
    print(json.dumps(report))


if __name__ == "__main__":
    main()
