"""The event log as server-sent events: `GET /api/v1/stream` (contract: The HTTP Hub & Dashboard)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpRequest, HttpResponseBase, JsonResponse, StreamingHttpResponse

from coordination.access import Approach, Refused, identify
from coordination.errors import NexusError, failure, invalid
from coordination.following import Filters, Follower
from coordination.models import Event
from coordination.operation import Caller, parse_cursor
from coordination.operations import event_data
from coordination.selectors import newest_event_id
from coordination.waiter import READERS, in_thread

FILTERS = ("workspace", "stream", "type", "agent")
OTHERS = {"cursor", "api_key"}


async def stream(request: HttpRequest) -> HttpResponseBase:
    """Every event from here on, or exactly after `Last-Event-ID` or `?cursor=`.

    `?workspace=`, `?stream=`, `?type=` and `?agent=` filter; each may be given again or hold values between commas.
    A message's `id` is its cursor and its data the event, as event_get gives it.
    """
    if request.method != "GET":
        error = invalid("The stream is read with GET.")
        return JsonResponse(failure(error), status=405, headers={"Allow": "GET"})
    approach = Approach.of_request(request, await request.auser())

    def who() -> Caller:
        return identify(approach, transport="sse")

    try:
        await in_thread(READERS, who)
        if unknown := set(request.GET) - set(FILTERS) - OTHERS:
            raise invalid(f"Unknown parameter {min(unknown)[:200]!r}; the stream takes {', '.join(FILTERS)}, cursor.")
        filters = Filters.parse({name: request.GET.getlist(name) for name in FILTERS})
        given = request.headers.get("Last-Event-ID") or request.GET.get("cursor")
        cursor = parse_cursor(given) if given else await in_thread(READERS, newest_event_id)
    except Refused as refusal:
        return JsonResponse(failure(refusal), status=refusal.status)
    except NexusError as error:
        return JsonResponse(failure(error), status=400)
    return StreamingHttpResponse(
        _messages(Follower(who, filters, cursor)),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"},
    )


async def _messages(follower: Follower) -> AsyncIterator[str]:
    yield _position(follower.cursor)  # a client that is cut before its first event resumes here, too
    with suppress(Refused):
        async with aclosing(follower.follow()) as items:
            async for item in items:
                yield _message(item) if isinstance(item, Event) else _position(follower.cursor)


def _message(event: Event) -> str:
    return f"id: {event.event_id}\ndata: {json.dumps(event_data(event), cls=DjangoJSONEncoder)}\n\n"


def _position(cursor: int) -> str:
    """A comment and an id: keeps the connection alive, moves the client's cursor, and no listener is called."""
    return f": here\nid: {cursor}\n\n"
