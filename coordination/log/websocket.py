"""The event log over a WebSocket: `/ws/events/`.

The client may send `{"filters": {workspace, stream, type, agent}, "cursor": n}` at any time; the query string takes the
same as the server-sent events do. The server sends `{"type": "event", "cursor", "event"}`, `filters` once a change has
taken effect, `heartbeat` after a silence, `error` for a message it did not understand, and `closing` with a reason.
Each carries the cursor to resume from.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import parse_qs

from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.urls import path

from coordination.log.follow import Filters, Follower, allowed
from coordination.log.selectors import newest_event_id
from coordination.log.sse import FILTERS, OTHERS
from coordination.models import Event
from coordination.rows import event_row
from core.access import ConnectionInfo, identify
from core.operations.caller import Caller, of_its_own
from core.operations.errors import Code, NexusError, invalid
from core.operations.parameters import parse_cursor
from core.operations.replies import failure
from core.waiting import AUTHENTICATION, READERS, in_thread

log = logging.getLogger(__name__)

SLOW_SECONDS = 5  # a client that takes nothing for so long is told its cursor and closed
FAREWELL_SECONDS = 1
GOING_AWAY, REFUSED, BROKEN, TOO_SLOW = 4001, 4008, 4011, 4013  # RFC 6455 leaves 4000 and up to applications


class EventsConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]  # Channels has no types
    """One listener."""

    following: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        info = ConnectionInfo.of_scope(self.scope, self.scope["user"])

        connection = of_its_own("websocket")

        def who() -> Caller:
            return allowed(identify(info, transport="websocket", connection=connection))

        try:
            await in_thread(AUTHENTICATION, who)
            filters, cursor = _asked(self.scope["query_string"].decode("latin-1"))
        except NexusError:
            await self.close()  # before it was accepted: the client gets 403
            return
        await self.accept()
        self.follower = Follower(who, filters, await in_thread(READERS, newest_event_id) if cursor is None else cursor)
        self.following = asyncio.create_task(self._follow())

    async def disconnect(self, code: int) -> None:
        if self.following is not None:
            self.following.cancel()
            await asyncio.wait([self.following])

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        try:
            self.follower.change(*_wished(await self._decoded(text_data)))
        except NexusError as error:
            await self._tell("error", **failure(error))

    async def _decoded(self, text: str | None) -> Any:
        try:
            return await self.decode_json(text or "")
        except (ValueError, RecursionError):
            raise invalid('Send JSON: {"filters": {…}, "cursor": n}.') from None

    async def _follow(self) -> None:
        try:
            async with aclosing(self.follower.follow()) as items:
                async for item in items:
                    async with asyncio.timeout(SLOW_SECONDS):
                        await self._pass_on(item)
            await self._end("The server goes down.", GOING_AWAY)
        except TimeoutError:
            # What was being sent stands in the connection's buffer: the client has it before it has this.
            await self._end("You read too slowly. Connect again from the cursor.", TOO_SLOW)
        except NexusError as error:
            refused = error.code in (Code.NOT_OWNER, Code.NOT_ALLOWED)  # else the store is away
            await self._end(error.message, REFUSED if refused else BROKEN)
        except Exception:
            log.exception("a listener could not be served")
            await self._end("The server failed. Connect again from the cursor.", BROKEN)

    async def _pass_on(self, item: Event | Filters | None) -> None:
        if isinstance(item, Event):
            self.follower.cursor = item.event_id
            await self._tell("event", event=event_row(item))
        elif isinstance(item, Filters):
            await self._tell("filters", filters=item.as_data())
        else:
            await self._tell("heartbeat")

    async def _tell(self, type: str, **content: Any) -> None:
        await self.send_json({"type": type, "cursor": self.follower.cursor, **content})

    async def _end(self, reason: str, code: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._tell("closing", reason=reason)
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.close(code)


def _asked(query: str) -> tuple[Filters, int | None]:
    given = parse_qs(query)
    if unknown := set(given) - set(FILTERS) - OTHERS:
        raise invalid(f"Unknown parameter {min(unknown)[:200]!r}.")
    cursor = given.get("cursor")
    filters = Filters.parse({name: given[name] for name in FILTERS if name in given})
    return filters, parse_cursor(cursor[-1]) if cursor else None


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
