"""The bounds of a request, before any application sees it whole."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from nexus.core.config import CoreSettings
from nexus_site.serving import bounds
from nexus_site.serving.bounds import MAX_BODY_BYTES, MAX_HEAD_BYTES, Bounded
from tests.acceptance.hub import START_SECONDS


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the size of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    await bounds.answer_json(send, 200, size)


def ask(parts: list[bytes], *headers: tuple[bytes, bytes], stall: bool = False) -> tuple[int, Any]:
    """The status and the body of the answer to a request whose body comes in these parts, and then stalls."""

    async def play() -> tuple[int, Any]:
        left = list(parts)
        sent: list[Any] = []

        async def receive() -> Any:
            if not left:
                await asyncio.Event().wait()
            part = left.pop(0)
            return {"type": "http.request", "body": part, "more_body": stall or bool(left)}

        async def send(message: Any) -> None:
            sent.append(message)

        scope: Any = {"type": "http", "method": "POST", "headers": list(headers)}
        await Bounded(echo)(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])

    return asyncio.run(asyncio.wait_for(play(), START_SECONDS))


def test_it_passes_a_body_of_the_largest_size_and_refuses_one_byte_more_however_it_comes() -> None:
    assert ask([b"x" * (MAX_BODY_BYTES - 1), b"x"]) == (200, MAX_BODY_BYTES)
    status, envelope = ask([b"x" * MAX_BODY_BYTES, b"x"])
    assert (status, envelope["error"]["code"]) == (413, "CONTENT_TOO_LARGE")
    for length in (str(MAX_BODY_BYTES + 1), "9" * 5000):
        assert ask([], (b"content-length", length.encode()))[0] == 413, "it is announced, and not read"


@pytest.mark.parametrize("values", [b"[]," * 400_000, b'{"a":{}},' * 200_000, b"0," * 1_000_000])
def test_it_refuses_a_body_whose_values_would_hold_up_everybody(values: bytes) -> None:
    status, envelope = ask([b"[", values, b"0]"])
    assert (status, envelope["error"]["code"]) == (413, "CONTENT_TOO_LARGE")


def test_it_passes_texts_of_the_largest_size_whatever_they_hold() -> None:
    text = b"," * CoreSettings.current().max_inline_bytes
    assert ask([b'{"subject": "', text, b'", "body": "', text, b'"}'])[0] == 200


def test_it_does_not_wait_for_a_slow_body_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BODY_SECONDS", 0.05)
    status, envelope = ask([b"x"], stall=True)
    assert (status, envelope["ok"]) == (408, False)


def test_it_refuses_headers_above_the_limit() -> None:
    status, envelope = ask([b""], (b"x", b"y" * MAX_HEAD_BYTES))
    assert (status, envelope["error"]["code"]) == (431, "CONTENT_TOO_LARGE")
