"""The event log as server-sent events (`GET /api/v1/stream`) and over a WebSocket (`/ws/events/`)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import parse_qs

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse
from django.urls import path

from coordination.log.follow import FILTERS, Follower, allowed, parse_query
from coordination.log.selectors import newest_event_id
from coordination.models import Event
from coordination.rows import event_row
from nexus.core.access import ConnectionInfo, identify
from nexus.core.operations.caller import Caller, of_its_own
from nexus.core.operations.dispatch import documented
from nexus.core.operations.errors import NexusError, invalid
from nexus.core.operations.parameters import parse_cursor
from nexus.core.operations.replies import failure
from nexus.core.rest.errors import refusal
from nexus.core.waiting import AUTHENTICATION, READERS, in_thread
from nexus.core.websocket import Listener


async def stream(request: HttpRequest) -> HttpResponseBase:
    """Every event from now on, or directly after `Last-Event-ID` or `?cursor=`.

    `?workspace=`, `?stream=`, `?type=` and `?agent=` filter; each may occur again or hold values between commas.
    A message's `id` is its cursor and its data the event, as event_get gives it.
    """
    if request.method != "GET":
        error = invalid("The stream is read with GET.")
        return JsonResponse(failure(error), status=405, headers={"Allow": "GET"})
    connection = of_its_own("sse")

    def who() -> Caller:
        return allowed(identify(info, transport="sse", connection=connection))

    try:
        info = ConnectionInfo.of_request(request, await request.auser())
        agent_id = (await in_thread(AUTHENTICATION, who)).agent_id
        filters, cursor = parse_query(dict(request.GET.lists()))
        if resumed := request.headers.get("Last-Event-ID"):
            cursor = parse_cursor(resumed)
        if cursor is None:
            cursor = await in_thread(READERS, newest_event_id)
    except Exception as error:  # the authentication may also raise errors of the store
        return refusal(error)
    return StreamingHttpResponse(
        _messages(Follower(who, agent_id, filters, cursor)),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"},
    )


async def _messages(follower: Follower) -> AsyncIterator[str]:
    yield _position(follower.cursor)  # a client that disconnects before its first event resumes here, too
    with suppress(NexusError):  # refused, or the store is away: a new connection gets the reason
        async with aclosing(follower.follow()) as items:
            async for item in items:
                yield _position(follower.cursor) if item is None else _message(item)


def _message(event: Event) -> str:
    return f"id: {event.event_id}\ndata: {json.dumps(event_row(event), cls=DjangoJSONEncoder)}\n\n"


def _position(cursor: int) -> str:
    """Return a comment and an id. They keep the connection alive and move the client's cursor, and call no listener."""
    return f": here\nid: {cursor}\n\n"


def openapi() -> dict[str, Any]:
    """Return the stream's path in the OpenAPI schema."""
    from nexus.core.rest.schema import ANY_OF, failures

    text = {"schema": {"type": "string"}, "required": False}
    resume = {"name": "Last-Event-ID", "in": "header", "description": "Resume exactly after this event.", **text}
    operation = {
        "operationId": "events_stream",
        "description": "The event log as server-sent events, from now on or directly after a cursor.",
        "tags": ["events"],
        "parameters": [*({"name": name, "in": "query", **text} for name in (*FILTERS, "cursor")), resume],
        "security": ANY_OF,
        "responses": {
            "200": {"description": "Events without end.", "content": {"text/event-stream": {"schema": text["schema"]}}},
            **failures(),
        },
    }
    return {"/api/v1/stream": {"get": operation}}


class EventsConsumer(Listener):
    """The event log over a WebSocket: `/ws/events/`.

    The query string takes the same as the server-sent events do. The server sends `{"type": "event", "cursor",
    "event"}`, `heartbeat` after a silence, `error` if the client sends a message, and `closing` with a reason. Each
    carries the cursor to resume from.
    """

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
        error = invalid("Nothing is taken here. Connect with other filters: ?stream=workspace&type=message.created.")
        await self.send_message("error", **failure(error))

    @property
    def position(self) -> int:
        return self.follower.cursor

    async def pass_on(self, item: Event | None) -> None:
        if item is None:
            await self.send_message("heartbeat")
        else:
            self.follower.cursor = item.event_id
            await self.send_message("event", event=event_row(item))


websocket_routes = [path("ws/events/", EventsConsumer.as_asgi())]
