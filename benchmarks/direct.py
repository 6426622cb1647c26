"""The pool in process: a worker and `DirectAgentAPI`, over the home of NEXUS_HOME.

Each line on stdin asks for one send, and is answered with its seconds; `benchmarks.control` sets them beside HTTP's.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from itertools import cycle

import django

SENDERS = [f"sender-{number}" for number in range(16)]  # in turn: no transcript gets so long that reading it counts


async def main() -> None:
    from nexus.control.direct import DirectAgentAPI
    from nexus.control.worker.work import Worker
    from nexus.core.clock import now

    worker = Worker(now())
    working = asyncio.create_task(worker.work())
    pool = DirectAgentAPI()
    for name in SENDERS:
        await pool.create_agent(name)
    for name in cycle(SENDERS):
        if not await asyncio.to_thread(sys.stdin.readline):
            break
        started = time.perf_counter()
        await pool.for_agent(name).send("hello")
        print(time.perf_counter() - started, flush=True)
    worker.stop()
    await working


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "nexus_site.settings"
    django.setup()
    from nexus.core.database import store

    store().prepare()
    asyncio.run(main())
