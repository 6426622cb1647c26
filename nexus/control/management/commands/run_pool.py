"""`nexus run-pool`: the pool's worker, as the server starts it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from datetime import datetime
from typing import Any

from django.core.management.base import CommandParser

from nexus.control import telemetry
from nexus.control.runners.configuration import runners
from nexus.control.worker.execution import to_hub
from nexus.control.worker.scheduling import Worker
from nexus.control.worker.watchdog import GRACE_SECONDS
from nexus.core.cli import Group, NexusCommand
from nexus.core.database.store import store
from nexus.core.guardian import kill_all
from nexus.core.operations.errors import Code, NexusError

LIFE_SECONDS = 0.25  # between two signs of life


class Command(NexusCommand):
    group = Group.HUB
    help = "Run the turns of the pool's agents. A server with --control starts this by itself."
    examples = """examples:
  nexus serve --control

exit codes: 0 the server ended, or asked it to; 1 it could not start; stderr has the code"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--since", required=True, help="When the server started.")

    def run(self, **options: Any) -> None:
        """Work until the server has ended. Raises CONFIG_ERROR if no server started this process, or for invalid
        runners."""
        if not stat.S_ISSOCK(os.fstat(0).st_mode):
            raise NexusError(Code.CONFIG_ERROR, "The server starts this by itself: nexus serve --control.")
        runners()  # read once: later errors in the file do no harm
        store().prepare()
        telemetry.start()
        asyncio.run(_work(datetime.fromisoformat(options["since"])))
        kill_all(GRACE_SECONDS)
        os._exit(0)


async def _work(since: datetime) -> None:
    worker = Worker(since, await to_hub())
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    loop.add_signal_handler(signal.SIGINT, worker.stop, True)
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=os.dup(0)))

    async def live() -> None:
        while True:
            writer.write(b".")
            await asyncio.sleep(LIFE_SECONDS)

    async def follow() -> None:
        await reader.read()
        worker.stop(at_once=True)  # the watchdog is gone

    beside = [loop.create_task(live()), loop.create_task(follow())]
    await worker.work()
    await asyncio.to_thread(telemetry.stop)  # here, where a second signal does not end it
    for task in beside:
        task.cancel()
