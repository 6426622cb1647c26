"""Subscriptions: one watch of the event log per server, however many clients listen."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from mcp.shared.subscriptions import ResourceUpdated, ServerEvent

from core.operations.registry import TOOLSETS
from core.waiting import waiter

Listener = Callable[[ServerEvent], None]

# Whose listener is being registered: the SDK's handler does not tell the bus.
subscriber: ContextVar[str | None] = ContextVar("subscriber", default=None)


class ResourceBus:
    """The SDK's SubscriptionBus over the event log: what any process changes becomes a ResourceUpdated here."""

    def __init__(self) -> None:
        self._listeners: dict[object, tuple[str | None, Listener]] = {}
        self._updated: set[str] = set()
        self._following: asyncio.Task[None] | None = None
        self._parked = asyncio.Event()

    async def start(self) -> None:
        """Begin to watch; on return, no change is missed."""
        if self._following is None or self._following.done():
            self._parked = asyncio.Event()
            self._following = asyncio.create_task(self._follow())
        await self._parked.wait()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Register a listener of the connection `subscriber`, after `start`; the callable that is returned ends it."""
        token = object()
        self._listeners[token] = (subscriber.get(), listener)

        def unsubscribe() -> None:
            self._listeners.pop(token, None)
            if not self._listeners and self._following is not None:
                self._following.cancel()
                self._following = None

        return unsubscribe

    async def publish(self, event: ServerEvent) -> None:
        """Hand an event to every listener."""
        for _, listener in list(self._listeners.values()):
            listener(event)

    def tell(self, connection: str | None, event: ServerEvent) -> None:
        """Hand an event to the listeners of one connection."""
        for whose, listener in list(self._listeners.values()):
            if whose == connection:
                listener(event)

    async def _follow(self) -> None:
        async with waiter().park(self._note) as parked:
            self._parked.set()
            while True:
                await parked.wait(math.inf)
                updated, self._updated = self._updated, set()
                for uri in sorted(updated):
                    await self.publish(ResourceUpdated(uri=uri))

    def _note(self, event: Any) -> bool:
        changed = [
            uri
            for toolset in TOOLSETS.values()
            for resource in toolset.agent_resources
            for agent_id in resource.changed(event)
            # A client may have spelt the id with or without percent-encoding.
            for uri in (resource.uri(agent_id), resource.prefix + agent_id)
        ]
        self._updated.update(changed)
        return bool(changed)
