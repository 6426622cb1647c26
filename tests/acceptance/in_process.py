"""A process that has the pool in itself: a worker and `DirectAgentAPI`, over the home of NEXUS_HOME.

Each line on stdin is a call, [method, {parameters}], of the agent that its `agent_id` names; its answer is a line.
["die", {"at": …, "before": …}] has the process killed there.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import django


def die(at: str, before: bool) -> None:
    """SIGKILL for this process at its next call of a function, or once that has done its work."""
    from nexus.control.services import turns
    from nexus.control.worker.scheduling import Worker

    place: Any = {"claim": turns, "_claimed": Worker, "settle": turns}[at]
    function = getattr(place, at)

    def dies(*arguments: Any, **named: Any) -> None:
        if not before:
            function(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(place, at, dies)


async def main() -> None:
    from nexus.control.direct import ClientAdapter, DirectAgentAPI
    from nexus.control.models import Turn
    from nexus.control.services import turns
    from nexus.control.worker.scheduling import Worker
    from nexus.core.clock import now
    from nexus.core.operations.errors import NexusError

    pool = DirectAgentAPI()

    async def answered(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if method == "die":
            while not turns.queued.has_listeners(Turn):  # from then on the worker claims a turn where it is stored
                await asyncio.sleep(0.01)
            die(**parameters)
            return {}
        of_agent = method not in ("create_agent", "list_agents")
        agent = pool.for_agent(parameters.pop("agent_id")) if of_agent else None
        try:
            return await ClientAdapter(pool, agent).call(method, parameters, of_agent=of_agent)
        except NexusError as error:
            return {"error": error.code}

    worker = Worker(now())
    working = asyncio.create_task(worker.work())
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await answered(*json.loads(line))), flush=True)
    worker.stop()
    await working


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "nexus_site.settings"
    django.setup()
    asyncio.run(main())
