"""Limits on every HTTP request, under any server: the size of its body, its values, and its time."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import Iterator
from typing import Any

from asgiref.typing import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope

from nexus.core.operations.errors import NexusError
from nexus.core.operations.parameters import whole_number
from nexus.core.operations.replies import failure
from nexus.core.size_limits import COUNTS_VALUES, TooMuch, most_values, values_in

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 4 * 1024 * 1024
BODY_SECONDS = 30  # for the whole body to arrive
SEND_SECONDS = 60  # for a client to read enough of a response for the next piece
PIECE_BYTES = 64 * 1024  # of a response at once: a server buffers all of what it gets until the client reads it
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the system also drops what the client did not read


class Bounded:
    """An ASGI application with limits on its requests; a request beyond them is answered 413 or 408, in the
    envelope."""

    def __init__(self, application: ASGI3Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            return await self.application(scope, receive, send)
        started, taken = False, True

        async def watched_send(message: Any) -> None:
            nonlocal started, taken
            started = True
            for piece in _pieces(message):
                try:
                    async with asyncio.timeout(SEND_SECONDS):
                        await send(piece)
                except TimeoutError:
                    taken = False
                    log.info("a client was given up that did not take its response")
                    if not _drop(send):
                        raise
                    await asyncio.sleep(0)  # the server notices, and tells the application as for any client that left
                    return

        try:
            await self.application(scope, _bounded(scope, receive), watched_send)
        except TooMuch as refusal:
            if not started:
                await answer_json(send, refusal.status, failure(NexusError(refusal.code, str(refusal))))
        except TimeoutError:
            if taken:
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


def _pieces(message: Any) -> Iterator[Any]:
    """Yield a message of a response with its body in pieces."""
    body = message.get("body", b"")
    starts = range(0, len(body), PIECE_BYTES)
    if len(starts) <= 1:
        yield message
        return
    for start in starts:
        more = start != starts[-1] or message.get("more_body", False)
        yield {**message, "body": body[start : start + PIECE_BYTES], "more_body": more}


def _drop(send: Any) -> bool:
    """Drop the connection behind a `send`, where the server allows it: an orderly close would wait for the client for
    ever.

    ASGI has no message for this. uvicorn's `send` is a method of the object with the transport; Daphne's server
    here drops connections itself.
    """
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    if transport is None:
        return False
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    transport.abort()
    return True


async def answer_json(send: Any, status: int, body: Any, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    """Send a complete JSON response over ASGI."""
    content = json.dumps(body).encode()
    common = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*common, *(headers or [])]})
    await send({"type": "http.response.body", "body": content})
