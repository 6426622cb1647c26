"""`NexusClient.stream` against servers that cut it, say nothing, refuse, or are none."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus.client.client
import nexus.client.stream
from nexus.client import CallFailed, ClientError, NexusClient, NotAuthorized, NotReached, StreamMessage
from nexus.client.http import TooLarge
from nexus.client.stream import read_stream
from tests.control.stub import free_port, listening, said

pytestmark = pytest.mark.usefixtures("starts_processes")

START = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pause before the next try."""
    monkeypatch.setattr(nexus.client.client, "FIRST_PAUSE", 0.0)


def message(event: str, place: int | None = None, **data: Any) -> bytes:
    where = "" if place is None else f"id: pool_a:{place}\n"
    return f"event: {event}\n{where}data: {json.dumps(data)}\n\n".encode()


def answers(*connections: bytes) -> tuple[Speak, list[str]]:
    """What one connection after another is told, before it is cut; and the heads of the requests."""
    left, heads = list(connections), []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
        writer.write(left.pop(0))
        await writer.drain()

    return speak, heads


def refusing(status: int, body: bytes) -> bytes:
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def told(port: int, **how: Any) -> list[StreamMessage]:
    async with NexusClient(port, token="nxk_it", **how) as client:
        return [each async for each in client.for_agent("ana").stream()]


async def test_it_goes_on_exactly_where_it_was_cut() -> None:
    speak, heads = answers(
        START + b": here\nid: pool_a:0\n\n" + message("entry", 1, position=0) + message("draft", offset=0, text="Hel"),
        START,
        START + b": here\nid: pool_a:1\n\n" + message("entry", 2, position=1) + b"event: entry\nid: pool_a:3\nda",
        START + message("state", ended=True),
    )
    async with listening(speak) as port:
        heard = await told(port)
    assert [each.event for each in heard] == ["entry", "draft", "entry", "state"]
    assert isinstance(heard[0], nexus.client.Told) and heard[0].place == heard[0].position == "pool_a:1"  # former names
    assert [each.data["position"] for each in heard if each.event == "entry"] == [0, 1]
    resumed = [head.partition("last-event-id: ")[2].partition("\r")[0] for head in heads]
    assert resumed == ["", "pool_a:1", "pool_a:1", "pool_a:2"]
    assert all("get /agent/ana/stream http" in head and "bearer nxk_it" in head for head in heads)


async def test_it_begins_at_a_place() -> None:
    speak, heads = answers(b"HTTP/1.1 204 X\r\n\r\n")
    async with listening(speak) as port, NexusClient(port, token="nxs_x") as client:
        assert [each.is_last async for each in client.for_agent("ana").stream("pool_a:7")] == [True]
    assert "last-event-id: pool_a:7" in heads[0]


async def test_it_leaves_a_connection_that_gives_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexus.client.stream, "SILENCE_SECONDS", 0.01)
    first = True

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal first
        await reader.readuntil(b"\r\n\r\n")
        silent, first = first, False
        writer.write(START + (message("entry", 1, position=0) if silent else message("state", ended=True)))
        if silent:
            await reader.read()  # until the client goes

    async with listening(speak) as port:
        assert [each.event for each in await told(port)] == ["entry", "state"]


async def test_it_waits_for_a_server_that_starts_again() -> None:
    speak, heads = answers(
        START + message("entry", 1, position=0),
        refusing(503, said(error={"code": -32004, "message": "busy"}, id=None)),
        refusing(404, b"<html>"),
        START + message("state", ended=True),
    )
    async with listening(speak) as port:
        assert [each.event for each in await told(port)] == ["entry", "state"]
    assert len(heads) == 4


REFUSALS: Sequence[tuple[bytes, type[ClientError], str]] = [
    (refusing(403, said(error={"code": -32600, "message": "Not yours."}, id=None)), NotAuthorized, "Not yours"),
    (refusing(404, said(error={"code": -32602, "message": "No such agent."}, id=None)), CallFailed, "No such agent"),
    (refusing(404, b"<html>"), NotReached, "no server's"),
    (refusing(200, b"{}"), NotReached, "no server's"),
    (refusing(400, said(result={}, id=None)), NotReached, "no server's"),
    (START + b"data: [\n\n", NotReached, "no server's"),
    (START + b"data: []\n\n", NotReached, "no server's"),
    (START + b"data: " + b"[" * 100_000 + b"\n\n", NotReached, "no server's"),
    (b"nonsense\r\n\r\n", NotReached, "broke"),
]


@pytest.mark.parametrize(("answer", "kind", "told_why"), REFUSALS)
async def test_it_tells_why_it_was_refused(answer: bytes, kind: type[ClientError], told_why: str) -> None:
    speak, _ = answers(answer)
    async with listening(speak) as port:
        with pytest.raises(kind, match=told_why):
            await told(port)


async def test_it_gives_up_on_a_server_that_does_not_come_back() -> None:
    speak, heads = answers(START + message("entry", 1, position=0), *[START] * 10_000)
    async with listening(speak) as port:
        with pytest.raises(NotReached):
            await told(port, timeout=0.05)
    assert len(heads) > 1
    with pytest.raises(NotReached, match="nexus serve --control"):
        await told(free_port())


async def test_it_believes_no_line_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexus.client.stream, "MAX_RESPONSE_BYTES", 2**16)
    speak, _ = answers(START + b"data: " + b"x" * 2**17)
    async with listening(speak) as port:
        with pytest.raises(NotReached, match="larger"):
            await told(port)


@given(st.binary(), st.sampled_from([200, 204, 302, 400, 403, 404, 500]), st.sampled_from(["text/event-stream", "a"]))
def test_whatever_a_server_answers_is_told_or_refused(body: bytes, status: int, kind: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        async def parts() -> Any:
            yield body

        return httpx.Response(status, headers={"content-type": kind}, content=parts())

    async def read() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            async for each in read_stream(client, "http://hub/agent/a/stream", None, token=None, seconds=60):
                assert isinstance(each.data, dict)

    with contextlib.suppress(ClientError, httpx.HTTPError, TooLarge):
        asyncio.run(read())
