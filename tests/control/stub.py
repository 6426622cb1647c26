"""Something that is no hub where a client looks for one: on a port, or in this process."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

import anyio
import httpx
import pytest
from anyio.abc import SocketStream

import nexus.client.client

PORTS, CONNECT = count(1_000), anyio.connect_tcp
Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Stub:
    """What listens, and the requests that it got: head and body."""

    port: int
    requests: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def heads(self) -> str:
        return "\n".join(head for head, _ in self.requests).lower()


@asynccontextmanager
async def listening(speak: Speak) -> AsyncIterator[int]:
    """A port on which each connection is handed to `speak`."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await speak(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@asynccontextmanager
async def here(speak: Speak) -> AsyncIterator[int]:
    """As `listening`, for HTTP clients of this process: each connection is a pair of sockets, and nothing else listens
    anywhere."""
    own, other, speaking = next(PORTS), anyio.connect_tcp, set[asyncio.Task[None]]()

    async def speaks(theirs: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=theirs)
        try:
            await speak(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def connect(remote_host: str, remote_port: int, **more: Any) -> SocketStream:
        if remote_port != own:
            if other is CONNECT:
                raise ConnectionRefusedError
            return cast(SocketStream, await other(remote_host, remote_port, **more))
        ours, theirs = socket.socketpair()
        speaking.add(asyncio.create_task(speaks(theirs)))
        return await SocketStream.from_socket(ours)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio, "connect_tcp", connect)
        yield own
    for task in speaking:
        task.cancel()


@asynccontextmanager
async def answering(answer: Callable[[str, bytes], tuple[int, bytes]]) -> AsyncIterator[Stub]:
    """HTTP, answered with a status and a body made of the request's head and body."""
    stub = Stub(0)

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = next(line for line in head.lower().splitlines() if line.startswith("content-length:")).split(":")[1]
        body = await reader.readexactly(int(length))
        stub.requests.append((head, body))
        status, content = answer(head, body)
        location = "location: http://127.0.0.1:1/elsewhere\r\n" if status == 307 else ""
        writer.write(f"HTTP/1.1 {status} X\r\n{location}content-length: {len(content)}\r\n\r\n".encode() + content)
        await writer.drain()

    async with here(speak) as port:
        stub.port = port
        yield stub


def in_process(patch: pytest.MonkeyPatch, answer: Callable[[str, bytes], tuple[int, bytes]]) -> Stub:
    """Answer what clients ask as `answering` does, without a connection; a GET is answered by a stream."""
    stub = Stub(8765)

    def handle(request: httpx.Request) -> httpx.Response:
        lines = [f"{request.method} {request.url.raw_path.decode()} HTTP/1.1", *map(": ".join, request.headers.items())]
        stub.requests.append(("\r\n".join(lines), request.content))
        status, content = answer(*stub.requests[-1])
        kind = "text/event-stream" if request.method == "GET" and status == 200 else "application/json"
        return httpx.Response(status, headers={"content-type": kind}, stream=httpx.ByteStream(content))

    patch.setattr(nexus.client.client, "connections", lambda: httpx.AsyncClient(transport=httpx.MockTransport(handle)))
    return stub


def of_server(token: str | None) -> Callable[[str, bytes], tuple[int, bytes]]:
    """The answers of a server with this token; None: it wants none."""

    def answer(head: str, body: bytes) -> tuple[int, bytes]:
        presented = [line.split()[-1] for line in head.splitlines() if line.lower().startswith("authorization:")]
        if token is not None and presented != [token]:
            return (403 if presented else 401), said(error={"code": -32600, "message": "no"}, id=None)
        return 200, said(result={"agents": [{"agent_id": "ana"}]}, id=json.loads(body)["id"])

    return answer


def said(**message: Any) -> bytes:
    """A JSON-RPC response."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port
