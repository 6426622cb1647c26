"""The event log over a WebSocket: `/ws/events/`.

The client may send `{"filters": {workspace, stream, type, agent}, "cursor": n}` at any time; the query string takes the
same as the server-sent events do. The server sends `{"type": "event", "cursor", "event"}`, `filters` once a change has
taken effect, `heartbeat` after a silence, `error` for a message it did not understand, and `closing` with a reason.
Each carries the cursor to resume from.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from django.urls import path

from coordination.log.follow import Filters, Follower, allowed, parse_query
from coordination.log.selectors import newest_event_id
from coordination.models import Event
from coordination.rows import event_row
from nexus.core.access import ConnectionInfo, identify
from nexus.core.operations.caller import Caller, of_its_own
from nexus.core.operations.errors import NexusError, invalid
from nexus.core.operations.parameters import parse_cursor
from nexus.core.operations.replies import failure
from nexus.core.operations.runner import documented
from nexus.core.waiting import AUTHENTICATION, READERS, in_thread
from nexus.core.websocket import Listener


class EventsConsumer(Listener):
    """One WebSocket client."""

    position_key = "cursor"

    async def connect(self) -> None:
        info = ConnectionInfo.of_scope(self.scope, self.scope["user"])

        connection = of_its_own("websocket")

        def who() -> Caller:
            return allowed(identify(info, transport="websocket", connection=connection))

        try:
            agent_id = (await in_thread(AUTHENTICATION, who)).agent_id
            filters, cursor = parse_query(parse_qs(info.query))
            start = await in_thread(READERS, newest_event_id) if cursor is None else cursor
        except Exception as error:
            documented(error)  # logs unexpected errors
            await self.close()  # before it was accepted: the client gets 403
            return
        await self.accept()
        self.follower = Follower(who, agent_id, filters, start)
        self.follow(self.follower.follow())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        try:
            self.follower.change(*_wished(await self._decoded(text_data)))
        except NexusError as error:
            await self.tell("error", **failure(error))

    async def _decoded(self, text: str | None) -> Any:
        try:
            return await self.decode_json(text or "")
        except (ValueError, RecursionError):
            raise invalid('Send JSON: {"filters": {…}, "cursor": n}.') from None

    @property
    def position(self) -> int:
        return self.follower.cursor

    async def pass_on(self, item: Event | Filters | None) -> None:
        if isinstance(item, Event):
            self.follower.cursor = item.event_id
            await self.tell("event", event=event_row(item))
        elif isinstance(item, Filters):
            await self.tell("filters", filters=item.as_data())
        else:
            await self.tell("heartbeat")


def _wished(message: Any) -> tuple[Filters | None, int | None]:
    if not isinstance(message, dict) or not message or set(message) - {"filters", "cursor"}:
        raise invalid('Send {"filters": {…}}, {"cursor": n} or both.')
    filters = message.get("filters", {})
    if not isinstance(filters, dict):
        raise invalid("filters must be an object of lists.", field="filters")
    return (
        Filters.parse(filters) if "filters" in message else None,
        parse_cursor(message["cursor"]) if "cursor" in message else None,
    )


routes = [path("ws/events/", EventsConsumer.as_asgi())]
