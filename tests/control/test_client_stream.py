"""`NexusClient.stream` against servers that cut it, say nothing, refuse, or are none."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
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
from tests.control.stub import Stub, free_port, in_process, listening, said

START = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pause before the next try."""
    monkeypatch.setattr(nexus.client.client, "FIRST_PAUSE", 0.0)


def message(event: str, place: int | None = None, **data: Any) -> bytes:
    where = "" if place is None else f"id: pool_a:{place}\n"
    return f"event: {event}\n{where}data: {json.dumps(data)}\n\n".encode()


def answers(patch: pytest.MonkeyPatch, *connections: tuple[int, bytes]) -> Stub:
    """What one connection after another is told, before it is cut: the status, and the body."""
    left = list(connections)
    return in_process(patch, lambda head, body: left.pop(0))


def error(status: int, code: int, why: str) -> tuple[int, bytes]:
    """A request that is refused."""
    return status, said(error={"code": code, "message": why}, id=None)


async def told(port: int = 8765, **how: Any) -> list[StreamMessage]:
    async with NexusClient(port, token="nxk_it", **how) as client:
        return [each async for each in client.for_agent("ana").stream()]


async def test_it_goes_on_exactly_where_it_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    first = b": here\nid: pool_a:0\n\n" + message("entry", 1, position=0) + message("draft", offset=0, text="Hel")
    third = b": here\nid: pool_a:1\n\n" + message("entry", 2, position=1) + b"event: entry\nid: pool_a:3\nda"
    stub = answers(monkeypatch, (200, first), (200, b""), (200, third), (200, message("state", ended=True)))
    heard = await told()
    assert [each.event for each in heard] == ["entry", "draft", "entry", "state"]
    assert isinstance(heard[0], nexus.client.Told) and heard[0].place == heard[0].position == "pool_a:1"  # former names
    assert [each.data["position"] for each in heard if each.event == "entry"] == [0, 1]
    heads = [head.lower() for head, _ in stub.requests]
    resumed = [head.partition("last-event-id: ")[2].partition("\r")[0] for head in heads]
    assert resumed == ["", "pool_a:1", "pool_a:1", "pool_a:2"]
    assert all("get /agent/ana/stream http" in head and "bearer nxk_it" in head for head in heads)


async def test_it_begins_at_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = answers(monkeypatch, (204, b""))
    async with NexusClient(8765, token="nxs_x") as client:
        assert [each.is_last async for each in client.for_agent("ana").stream("pool_a:7")] == [True]
    assert "last-event-id: pool_a:7" in stub.heads


@pytest.mark.usefixtures("starts_processes")  # it is the connection that tells of silence
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


async def test_it_waits_for_a_server_that_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = message("entry", 1, position=0), message("state", ended=True)
    stub = answers(monkeypatch, (200, begun), error(503, -32004, "busy"), (404, b"<html>"), (200, ended))
    assert [each.event for each in await told()] == ["entry", "state"]
    assert len(stub.requests) == 4


async def test_it_tells_why_it_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals: Sequence[tuple[tuple[int, bytes], type[ClientError], str]] = [
        (error(403, -32600, "Not yours."), NotAuthorized, "Not yours"),
        (error(404, -32602, "No such agent."), CallFailed, "No such agent"),
        ((404, b"<html>"), NotReached, "no server's"),
        ((400, said(result={}, id=None)), NotReached, "no server's"),
        ((200, b"data: [\n\n"), NotReached, "no server's"),
        ((200, b"data: []\n\n"), NotReached, "no server's"),
        ((200, b"data: " + b"[" * 100_000 + b"\n\n"), NotReached, "no server's"),
    ]
    for answer, kind, told_why in refusals:
        answers(monkeypatch, answer)
        with pytest.raises(kind, match=told_why):
            await told()


@pytest.mark.usefixtures("starts_processes")
async def test_it_tells_what_is_no_stream_or_no_http() -> None:
    for answer, told_why in (
        (b"HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\n{}", "no server's"),
        (b"nonsense\r\n\r\n", "broke"),
    ):

        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes = answer) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)

        async with listening(speak) as port:
            with pytest.raises(NotReached, match=told_why):
                await told(port)


@pytest.mark.usefixtures("starts_processes")
async def test_it_gives_up_on_a_server_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotReached, match="nexus serve --control"):
        await told(free_port())
    stub = answers(monkeypatch, (200, message("entry", 1, position=0)), *[(200, b"")] * 10_000)
    with pytest.raises(NotReached):
        await told(timeout=0.05)
    assert len(stub.requests) > 1


async def test_it_believes_no_line_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexus.client.stream, "MAX_RESPONSE_BYTES", 2**16)
    answers(monkeypatch, (200, b"data: " + b"x" * 2**17))
    with pytest.raises(NotReached, match="larger"):
        await told()


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
