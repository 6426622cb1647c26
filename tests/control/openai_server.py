"""A small server that speaks as OpenAI's does: each request takes the next reply of its script."""

from __future__ import annotations

import json
import platform
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

Reply = Callable[["Handler"], None]
platform.processor()  # a program tells it, which OpenAI's client asks for once, in the middle of a test
KEY = "sk-test-0123456789abcdef"


class Server:
    """What it was asked, and what it answers."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self.asked: list[dict[str, Any]] = []
        self.seen = threading.Event()  # a request has come
        self.left = threading.Event()  # a client went away in the middle
        self._lock = threading.Lock()

    def next_reply(self, body: dict[str, Any]) -> Reply:
        with self._lock:
            self.asked.append(body)
            self.seen.set()
            return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Server

    def do_POST(self) -> None:
        self.body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.close_connection = True
        try:
            self.script.next_reply(self.body)(self)
        except (BrokenPipeError, ConnectionResetError):
            self.script.left.set()

    def begin(self, status: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "connection": "close", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def chunk(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> None:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        self.event({"choices": choices, **more})

    def event(self, data: dict[str, Any]) -> None:
        base = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": self.body["model"]}
        self.wfile.write(f"data: {json.dumps(base | data)}\n\n".encode())
        self.wfile.flush()

    def done(self, usage: tuple[int, int]) -> None:
        sent, got = usage
        counted = {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got}
        self.event({"choices": [], "usage": counted})
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *arguments: Any) -> None:
        pass


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # with the default of five, the kernel resets some of twenty agents that come at once


def says(*pieces: str, usage: tuple[int, int] = (10, 5)) -> Reply:
    """Streams a text in pieces."""

    def reply(handler: Handler) -> None:
        handler.begin()
        for piece in pieces:
            handler.chunk({"role": "assistant", "content": piece})
        handler.chunk({}, "stop")
        handler.done(usage)

    return reply


def calls(*called: tuple[str, Any], ids: Sequence[str] = (), usage: tuple[int, int] = (10, 5)) -> Reply:
    """Calls tools, by name and arguments; a text stands as it is."""

    def reply(handler: Handler) -> None:
        handler.begin()
        for number, (name, arguments) in enumerate(called):
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            call_id = ids[number] if ids else f"call-{len(handler.script.asked)}-{number}"
            function = {"name": name, "arguments": text[: len(text) // 2]}
            handler.chunk({"tool_calls": [{"index": number, "id": call_id, "type": "function", "function": function}]})
            rest = {"arguments": text[len(text) // 2 :]}
            handler.chunk({"tool_calls": [{"index": number, "function": rest}]})
        handler.chunk({}, "tool_calls")
        handler.done(usage)

    return reply


def refuses(status: int, message: str = "not now", **headers: str) -> Reply:
    """An error of the provider."""

    def reply(handler: Handler) -> None:
        body = json.dumps({"error": {"message": message, "type": "test", "code": None}}).encode()
        handler.begin(status, "application/json", content_length=str(len(body)), **headers)
        handler.wfile.write(body)

    return reply


def stalls(*pieces: str) -> Reply:
    """Begins, and then says nothing until the client goes, or the test ends."""

    def reply(handler: Handler) -> None:
        handler.begin()
        for piece in pieces:
            handler.chunk({"role": "assistant", "content": piece})
        handler.wfile.flush()
        with suppress(ConnectionResetError):  # it went before it had read everything
            handler.connection.recv(1)
        handler.script.left.set()

    return reply


def cuts_off(*pieces: str) -> Reply:
    """Begins an answer, and breaks the connection in its middle."""

    def reply(handler: Handler) -> None:
        handler.begin(content_length="1000000")
        for piece in pieces:
            handler.chunk({"role": "assistant", "content": piece})

    return reply


def sends(data: bytes, kind: str = "text/event-stream") -> Reply:
    """Any bytes."""

    def reply(handler: Handler) -> None:
        handler.begin(kind=kind)
        handler.wfile.write(data)

    return reply


def floods(data: bytes) -> Reply:
    """The same bytes without an end."""

    def reply(handler: Handler) -> None:
        handler.begin()
        while True:
            handler.wfile.write(data)

    return reply


def hangs_up(handler: Handler) -> None:
    """No answer at all."""
    handler.connection.close()


@contextmanager
def scripted(*replies: Reply) -> Iterator[tuple[Server, str]]:
    """As `serving`, for clients of this process alone: each connection is a pair of sockets, so there is no port."""
    script = Server(replies)
    handler = type("Scripted", (Handler,), {"script": script})

    def handle(theirs: socket.socket) -> None:
        with theirs:
            handler(theirs, ("", 0), None)
            with suppress(OSError):  # the client has gone
                theirs.shutdown(socket.SHUT_RDWR)

    async def connect(*_: Any, **__: Any) -> SocketStream:
        ours, theirs = socket.socketpair()
        threading.Thread(target=handle, args=(theirs,), daemon=True).start()
        return await SocketStream.from_socket(ours)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anyio, "connect_tcp", connect)
        yield script, "http://model.test/v1"


@contextmanager
def serving(*replies: Reply) -> Iterator[tuple[Server, str]]:
    """A server, and its base_url; the last reply comes again and again."""
    script = Server(replies)
    server = Listener(("127.0.0.1", 0), type("Scripted", (Handler,), {"script": script}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield script, f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
