"""Inbox subscriptions: one watch of the event log per server, however many clients listen."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from mcp.shared.subscriptions import ResourceUpdated, ServerEvent

from coordination.models import Event
from core.waiting import waiter
from mcp_bridge.resources import INBOX, inbox_uri

Listener = Callable[[ServerEvent], None]


class InboxBus:
    """The SDK's SubscriptionBus over the event log: mail by any process becomes a ResourceUpdated here."""

    def __init__(self) -> None:
        self._listeners: dict[object, Listener] = {}
        self._updated: set[str] = set()
        self._following: asyncio.Task[None] | None = None
        self._parked = asyncio.Event()

    async def start(self) -> None:
        """Begin to watch; on return, no mail that arrives is missed."""
        if self._following is None or self._following.done():
            self._parked = asyncio.Event()
            self._following = asyncio.create_task(self._follow())
        await self._parked.wait()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Register a listener, after `start`; the callable that is returned ends it."""
        token = object()
        self._listeners[token] = listener

        def unsubscribe() -> None:
            self._listeners.pop(token, None)
            if not self._listeners and self._following is not None:
                self._following.cancel()
                self._following = None

        return unsubscribe

    async def publish(self, event: ServerEvent) -> None:
        """Hand an event to every listener."""
        for listener in list(self._listeners.values()):
            listener(event)

    async def _follow(self) -> None:
        async with waiter().park(self._note) as parked:
            self._parked.set()
            while True:
                await parked.wait(math.inf)
                updated, self._updated = self._updated, set()
                for uri in sorted(updated):
                    await self.publish(ResourceUpdated(uri=uri))

    def _note(self, event: Event) -> bool:
        recipients = event.payload.get("recipients", ()) if event.type == "message.created" else ()
        for agent_id in recipients:  # a client may have spelt the id with or without percent-encoding
            self._updated |= {inbox_uri(agent_id), INBOX + agent_id}
        return bool(recipients)
