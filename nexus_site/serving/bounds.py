"""Limits on every HTTP request, under any server: the size of its body, its values, and its time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from asgiref.typing import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope

from nexus.core import waiting
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import whole_number
from nexus.core.operations.replies import failure
from nexus.core.size_limits import COUNTS_VALUES, TooMuch, most_values, values_in

MAX_HEAD_BYTES = 64 * 1024  # of a request's headers; an endpoint may allow less, and says so
MAX_BODY_BYTES = 4 * 1024 * 1024
BODY_SECONDS = 30  # for the whole body to arrive
UNREAD_SECONDS = 60  # a client that reads nothing of what waits for it is dropped after this time
MAX_FRAME_BYTES = 64 * 1024  # of a client's WebSocket message: filters and cursors are small


class Bounded:
    """An ASGI application with limits on its requests; a request beyond them is answered 431, 413 or 408, in the
    envelope. So is, with 500, a request where the application fails before its response begins; the server logs it."""

    def __init__(self, application: ASGI3Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            return await self.application(scope, receive, send)
        started = False

        async def watched_send(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                if waiting.waiter().closing:  # otherwise a client that keeps calling delays the end
                    message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            elif scope["method"] == "HEAD":
                message = {**message, "body": b""}  # Daphne would send it
            await send(message)

        try:
            if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEAD_BYTES:
                raise TooMuch(431, f"The request's headers are above the limit of {MAX_HEAD_BYTES} bytes.")
            await self.application(scope, _bounded(scope, receive), watched_send)
        except TooMuch as refusal:
            if not started:
                await answer_json(send, refusal.status, failure(NexusError(refusal.code, str(refusal))))
        except Exception:
            if not started:
                unexpected = NexusError(Code.INTERNAL_ERROR, "An unexpected internal error occurred.")
                await answer_json(send, 500, failure(unexpected))
            raise


def _bounded(scope: Any, receive: ASGIReceiveCallable) -> ASGIReceiveCallable:
    left, values_left = MAX_BODY_BYTES, most_values()
    complete = False
    deadline: float | None = None
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")

    async def bounded() -> Any:
        nonlocal left, values_left, complete, deadline
        if complete:
            return await receive()
        if deadline is None:  # its turn may have come late
            deadline = asyncio.get_running_loop().time() + BODY_SECONDS
        if declared.isdigit() and whole_number(declared.decode(), MAX_BODY_BYTES) is None:
            raise TooMuch(413, f"The request's body is above the limit of {MAX_BODY_BYTES} bytes.")
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise TooMuch(408, f"The request's body did not arrive within {BODY_SECONDS} seconds.") from None
        if message["type"] == "http.request":
            left -= len(message.get("body", b""))
            values_left -= values_in(message.get("body", b""))
            complete = not message.get("more_body", False)
        if left < 0:
            raise TooMuch(413, f"The request's body is above the limit of {MAX_BODY_BYTES} bytes.")
        if values_left < 0 and COUNTS_VALUES not in scope:
            raise TooMuch(413, "The request's body holds more values than any call takes.")
        return message

    return bounded


async def answer_json(send: Any, status: int, body: Any, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """Send a complete JSON response over ASGI."""
    content = json.dumps(body).encode()
    common = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*common, *(headers or [])]})
    await send({"type": "http.response.body", "body": content})
