"""`nexus run-pool`: the worker of the hub as the server starts it, and that of another machine."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import socket
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from nexus.control.agents import machines
from nexus.control.models import HUB, Incarnation
from nexus.control.runners import telemetry
from nexus.control.runners_file import LABEL_PATTERN, runners
from nexus.control.worker.execution import to_hub
from nexus.control.worker.scheduling import Worker
from nexus.core import surroundings
from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.config import CoreSettings
from nexus.core.database.store import store
from nexus.core.guardian import kill_all
from nexus.core.operations.errors import Code, NexusError

MOST_AGENTS = 10_000
LIFE_SECONDS = 1.0  # between two signs of life
GRACE_SECONDS = 5.0  # for what is left of the agents' processes to end


class Command(NexusCommand):
    group = CommandGroup.HUB
    help = "Run agents of the pool on this machine, beside the hubs, over PostgreSQL. A hub runs others by itself."
    examples = """examples:
  nexus run-pool --labels gpu,linux --max-agents 8
  nexus run-pool --labels linux --name builder-1

exit codes: 0 it was asked to end; 1 it could not start, or another took its name; stderr has the code"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--labels", default="", help="What this machine offers, such as gpu,linux.")
        parser.add_argument("--max-agents", type=int, default=8, help="How many agents run at once (8).")
        parser.add_argument("--name", help="The machine's name, which is a label, too; else that of the host.")
        for name in ("--since", "--machine", "--epoch"):  # of the process that does the work
            parser.add_argument(name, help=argparse.SUPPRESS)

    def run(self, **options: Any) -> None:
        """Work until asked to end. Raises CONFIG_ERROR for invalid runners or options, without PostgreSQL, and while
        another process works under the name."""
        runners()  # read once: later errors in the file do no harm
        if not 1 <= options["max_agents"] <= MOST_AGENTS:
            raise NexusError(Code.CONFIG_ERROR, f"--max-agents: use a number from 1 to {MOST_AGENTS}.")
        if options["since"] is None:
            self._run_machine(options)
            return
        store().prepare()
        telemetry.start()
        asyncio.run(_work(options))
        kill_all(GRACE_SECONDS)
        os._exit(0)

    def _run_machine(self, options: Mapping[str, Any]) -> None:
        if CoreSettings.current().database_url is None:
            raise NexusError(
                Code.CONFIG_ERROR,
                "Other machines than the hub's need a store that they reach: set NEXUS_DATABASE_URL "
                "(docs/how-to/scale-out.md). Over SQLite the hub runs all agents: nexus serve --control.",
            )
        surroundings.take_git_settings()
        name = options["name"] or socket.gethostname()
        labels = [label for label in options["labels"].split(",") if label]
        for text in (name, *labels):
            if not re.fullmatch(LABEL_PATTERN, text) or text == HUB:
                raise NexusError(
                    Code.CONFIG_ERROR,
                    f"{text[:100]!r} is no name and no label: use letters, digits, `_`, `.` and `-`, at most 64, and "
                    f"not {HUB}, which is the server's own.",
                )
        store().prepare()
        machines.follow_clock()
        asyncio.run(self._work_as_machine(name, labels, options["max_agents"]))

    async def _work_as_machine(self, name: str, labels: list[str], capacity: int) -> None:
        from nexus.control.worker.supervision import work_as_machine  # the process that it starts needs none of it

        def say() -> None:
            offers = ", ".join(labels) or "none"
            self.stdout.write(f"[nexus] Machine {name} works; labels: {offers}; agents at once: {capacity}")
            self.stdout.flush()

        task = asyncio.create_task(work_as_machine(name, labels, capacity, say))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _work(options: Mapping[str, Any]) -> None:
    machine = options["machine"] and Incarnation(options["machine"], int(options["epoch"]))
    capacity = options["max_agents"] if machine else None
    report = await to_hub()
    worker = Worker(datetime.fromisoformat(options["since"]), report, machine or None, capacity)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    loop.add_signal_handler(signal.SIGINT, worker.stop, True)
    hub = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(hub), os.fdopen(os.dup(0), "rb", 0))

    async def live() -> None:
        while True:
            report({})
            await asyncio.sleep(LIFE_SECONDS)

    async def follow() -> None:
        await hub.read()
        worker.stop()  # the hub ends

    beside = [loop.create_task(live()), loop.create_task(follow())]
    await worker.work()
    await asyncio.to_thread(telemetry.stop)  # here, where a second signal does not end it
    for task in beside:
        task.cancel()
