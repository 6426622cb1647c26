"""An agent of the pool live, as server-sent events: `GET /agent/{agent_id}/stream`.

`entry` is an entry of its transcript, `state` its new state after a change, and `draft` a piece of the text that it is
writing. A message's id is the exact position to resume from, by `Last-Event-ID` or `?after=`; without one the stream
begins with the transcript. The stream ends with the agent. A client that comes back after the end gets a 204, so that a
browser stops trying.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs

from django.core.serializers.json import DjangoJSONEncoder

from nexus.client.jsonrpc import INVALID_REQUEST, make_error_response, serialize_response
from nexus.control.drafts import Piece
from nexus.control.following import Follower, Position, State, entry_row, is_over, may_follow, parse_position
from nexus.control.models import Entry
from nexus.control.rpc.methods import error_response
from nexus.core.access import ConnectionInfo, Refused
from nexus.core.cancellation import while_there
from nexus.core.operations.caller import Caller, of_its_own
from nexus.core.operations.runner import documented
from nexus.core.waiting import AUTHENTICATION, READERS, in_thread

PATH = re.compile(r"/agent/([^/]+)/stream/?")
HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
Who = Callable[[ConnectionInfo, str], Caller]  # given the name of the connection; raises NexusError


def openapi() -> dict[str, Any]:
    """Return the stream's path in the OpenAPI schema."""
    from nexus.core.rest.schema import ANY_OF, FAILURES

    text = {"schema": {"type": "string"}}
    refusal = {"application/json": {"schema": {"type": "object"}}}
    operation = {
        "operationId": "pool_agent_stream",
        "description": "With `--control`: an agent of the pool as server-sent events (`entry`, `state`, `draft`), from "
        "the beginning of its transcript or exactly after a position. A refusal is an error of JSON-RPC.",
        "tags": ["pool"],
        "parameters": [
            {"name": "agent_id", "in": "path", "required": True, **text},
            {"name": "after", "in": "query", "required": False, **text},
            {"name": "Last-Event-ID", "in": "header", "description": "As `after`.", "required": False, **text},
        ],
        "security": ANY_OF,
        "responses": {
            "200": {"description": "Until the agent ends.", "content": {"text/event-stream": text}},
            "204": {"description": "Nothing more is to come."},
            **{status: {"description": why, "content": refusal} for status, why in FAILURES.items()},
        },
    }
    return {"/agent/{agent_id}/stream": {"get": operation}}


def asks(path: str) -> bool:
    """Return whether a path is that of a stream."""
    return PATH.fullmatch(path) is not None


class Stream:
    """The ASGI application; `who` identifies the caller."""

    def __init__(self, who: Who) -> None:
        self.who = who

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] != "GET":
            refusal = serialize_response(make_error_response(None, INVALID_REQUEST, "A stream is read with GET."))
            await _answer(send, 405, refusal, [(b"allow", b"GET")])
            return
        try:
            follower = await self._begun(scope)
        except Exception as failure:  # including those of the database driver
            error = documented(failure)
            status = error.status if isinstance(error, Refused) else error.code.status
            await _answer(send, status, serialize_response(error_response(None, error)))
            return
        if follower is None:
            await _answer(send, 204, "")
            return
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await while_there(receive, _sent(follower, send))

    async def _begun(self, scope: Any) -> Follower | None:
        """Return a follower at the requested position; None if nothing can come any more. Raises NexusError."""
        info, connection = ConnectionInfo.of_scope(scope, scope.get("user")), of_its_own("sse")
        found = PATH.fullmatch(scope["path"])
        assert found is not None
        agent_id = found[1]

        def who() -> Caller:
            return self.who(info, connection)

        caller = await in_thread(AUTHENTICATION, who)
        named = parse_qs(info.query).get("after", [])
        given = next(iter([*info.values("last-event-id"), *named]), None)

        def begin() -> tuple[Position, bool]:
            start = parse_position(agent_id, given)
            may_follow(caller, start.agent)
            return start, given is not None and is_over(start)

        start, over = await in_thread(READERS, begin)
        return None if over else Follower(who, start)


async def _sent(follower: Follower, send: Any) -> None:
    async for message in _messages(follower):
        await send({"type": "http.response.body", "body": message.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _messages(follower: Follower) -> AsyncIterator[str]:
    yield _position_comment(follower.position)  # so that a client that is cut off before its first entry can resume
    try:
        async with aclosing(follower.follow()) as items:
            async for item in items:
                yield _message(follower.position, item)
    except Exception as failure:  # refused now, or the store is away: a reconnect gets the error
        error = documented(failure)
        yield f"event: closing\ndata: {_json({'code': error.code, 'reason': error.message})}\n\n"


def _message(position: Position, item: Entry | State | Piece | None) -> str:
    if isinstance(item, Entry):
        behind = Position(position.agent, item.position + 1)
        return f"event: entry\nid: {behind}\ndata: {_json(entry_row(item))}\n\n"
    if isinstance(item, Piece):
        return f"event: draft\ndata: {_json(vars(item))}\n\n"
    return _position_comment(position) if item is None else f"event: state\ndata: {_json(item)}\n\n"


def _position_comment(position: Position) -> str:
    """Return a comment with an id: it keeps the connection alive and moves the client's position without an event."""
    return f": here\nid: {position}\n\n"


def _json(value: Any) -> str:
    return json.dumps(value, cls=DjangoJSONEncoder)


async def _answer(send: Any, status: int, text: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    body = text.encode()
    kind = [(b"content-type", b"application/json")] if body else []
    await send({"type": "http.response.start", "status": status, "headers": [*kind, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})
