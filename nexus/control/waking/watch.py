"""When the worker looks for agents to wake: at events that may wake one, and regularly for what changes with time
alone."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from inbox.models import ARRIVALS
from nexus.control.services import turns
from nexus.control.waking import kinds, services
from nexus.core.background_work import Failures
from nexus.core.waiting import READERS, WRITERS, in_thread, waiter

log = logging.getLogger(__name__)

RENEW_SECONDS = 60.0
LOOK_SECONDS = 1.0  # between two looks when no event came: leases expire without one


class Watch:
    """What may have changed since the last look."""

    def __init__(self) -> None:
        self._stirred = set(kinds.declared())
        self._looked = -RENEW_SECONDS
        self._failures = Failures(log)

    def may_wake(self, event: Any) -> bool:
        """Return whether an event may wake an agent, and remember its kind."""
        ended = event.type in turns.ENDS  # its agent is free again, also for earlier items
        stirred = {name for name, kind in kinds.declared().items() if ended or event.type in kind.events}
        self._stirred |= stirred
        return ended or bool(stirred) or event.type in ARRIVALS

    async def work(self) -> None:
        """Wake agents until cancelled."""
        while True:
            try:
                async with waiter().park(self.may_wake) as parked:  # park first, so that no event is missed
                    while True:
                        await self.look()
                        self._failures.succeeded(None, "agents are woken")
                        await parked.wait(LOOK_SECONDS)
            except Exception as error:
                self._failures.failed(None, "no agents could be woken", error)
                await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Start the turns of agents that an item wakes. Mail is checked each time, because its leases expire without an
        event."""
        if (clock := asyncio.get_running_loop().time()) - self._looked >= RENEW_SECONDS:
            self._looked = clock
            self._stirred = set(kinds.declared())
            await in_thread(WRITERS, services.renew)
        stirred, self._stirred = self._stirred, set()
        try:
            for agent_pk in await in_thread(READERS, partial(services.callable_by, stirred)):
                await in_thread(WRITERS, partial(services.wake, agent_pk, stirred))
        except Exception:
            self._stirred |= stirred  # retry them in the next look
            raise
