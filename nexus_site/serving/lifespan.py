"""The start of the hub's application before it is served, and its end, alike under either server."""

from __future__ import annotations

import asyncio
from typing import Any

from nexus.core.operations.errors import Code, NexusError


class Lifespan:
    """The ASGI lifespan of an application. Daphne does not send it, and uvicorn logs why a start failed, but raises no
    error."""

    def __init__(self, application: Any) -> None:
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.outgoing: asyncio.Queue[Any] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        self.task = asyncio.ensure_future(application(scope, self.incoming.get, self.outgoing.put))

    async def startup(self) -> None:
        """Start the application. Raises CONFIG_ERROR when it does not start."""
        await self.incoming.put({"type": "lifespan.startup"})
        answer = await self.outgoing.get()
        if answer["type"] != "lifespan.startup.complete":
            raise NexusError(Code.CONFIG_ERROR, answer.get("message") or "The application did not start.")

    async def shutdown(self) -> None:
        await self.incoming.put({"type": "lifespan.shutdown"})
        await self.task
