"""What a response leaves behind whose client does not take it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse

from nexus_site.serving import bounds, django
from nexus_site.serving.bounds import PIECE_BYTES, Bounded
from tests.acceptance.hub import START_SECONDS

SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}


class Remembering(django.Django):
    """Every request is answered alike; `seen` is the answer, for as long as somebody holds it."""

    seen: weakref.ref[HttpResponse]

    async def run_get_response(self, request: HttpRequest) -> HttpResponse:
        response = HttpResponse(b"all of it")
        self.seen = weakref.ref(response)
        return response


async def test_it_lets_go_of_an_answer_once_the_client_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(django, "LEFT_SECONDS", 0.1)
    answering, arrived = asyncio.Event(), [{"type": "http.request", "body": b""}]

    async def receive() -> Any:
        if arrived:
            return arrived.pop()
        await answering.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        answering.set()
        await asyncio.Event().wait()  # it is never taken

    application = Remembering(1)
    gc.disable()  # nobody looks for garbage
    try:
        await application(SCOPE, receive, send)
        async with asyncio.timeout(START_SECONDS):
            while application.seen() is not None:
                await asyncio.sleep(0.001)
    finally:
        gc.enable()


class RememberingRequests(django.Django):
    """`seen` is the last request, for as long as somebody holds it."""

    seen: weakref.ref[HttpRequest]

    def create_request(self, scope: Any, body_file: Any) -> Any:
        request, refusal = super().create_request(scope, body_file)
        assert request is not None
        self.seen = weakref.ref(request)
        return request, refusal


async def test_it_lets_go_of_a_request_once_it_is_answered() -> None:
    arrived, sent = [{"type": "http.request", "body": b""}], list[Any]()

    async def receive() -> Any:
        return arrived.pop() if arrived else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    application = RememberingRequests(1)
    gc.disable()
    try:
        path, host = "/api/v1/coordination/operations/agent_list", [(b"host", b"localhost")]
        await application(SCOPE | {"path": path, "headers": host}, receive, send)
        assert sent[0]["status"] == 405 and application.seen() is None
    finally:
        gc.enable()


class Connection:
    """A server's side of a connection whose client takes no more than the first piece."""

    def __init__(self) -> None:
        self.taken = b""
        self.aborted = False
        self.transport = self

    async def send(self, message: Any) -> None:
        if self.taken:
            await asyncio.Event().wait()
        self.taken += message.get("body", b"")

    def get_extra_info(self, name: str) -> Connection:
        return self

    def setsockopt(self, *option: Any) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


async def test_it_hands_out_a_piece_at_a_time_and_cuts_who_does_not_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SEND_SECONDS", 0.05)
    connection, ended = Connection(), []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 10 * PIECE_BYTES})
        ended.append(True)

    await Bounded(application)(SCOPE, None, connection.send)  # type: ignore[arg-type]
    assert connection.aborted and ended and len(connection.taken) == PIECE_BYTES
