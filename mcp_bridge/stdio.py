"""MCP on stdin and stdout: the SDK's transport over the event loop's own pipes, with an answer to every line.

Pipes of the event loop need no thread for each line and can be cancelled, so that a signal ends the process cleanly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import stat
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCResponse, RequestId
from pydantic import ValidationError

from mcp_bridge.features import wire
from mcp_bridge.relay import HEAD, TOO_LARGE
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.replies import Outcome, Reply
from nexus.core.size_limits import most_values, values_in, values_outside_texts

LONGEST_LINE = 64 * 2**20  # bytes; far above any message within max_inline_bytes


async def serve(server: Server[Any], reply: Reply) -> None:
    """Serve one client until stdin closes or the task is cancelled; only the protocol reaches its stdout.

    A call that cannot be read is answered in the form of `reply`.
    """
    wire = os.dup(1)
    os.dup2(2, 1)  # stray output goes to stderr
    try:
        lines, end = await _lines()
        async with stdio_server(lines, await _output(wire, end)) as (read, write):
            await server.run(cast(Any, Answered(read, write, reply)), write, server.create_initialization_options())
    finally:
        os.dup2(wire, 1)
        os.close(wire)


async def _lines() -> tuple[anyio.AsyncFile[str] | None, Callable[[], None]]:
    """Return stdin as lines of the event loop, and a function that ends them; None (the SDK reads) for a file or a
    device."""
    if not _is_pipe(0):
        return None, lambda: None
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return cast("anyio.AsyncFile[str]", bounded(reader)), transport.close


async def bounded(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines that may be parsed; of a longer one only its head, which is not JSON and is answered as too
    large."""
    while True:
        head = b""
        try:
            line = await reader.readuntil()
        except asyncio.IncompleteReadError as end:
            line = end.partial
            if not line:
                return
        except asyncio.LimitOverrunError:
            head = await _skipped_line(reader)
        else:
            most = most_values()
            too_many = values_in(line) > most and values_outside_texts(line) > most
            head = line[:HEAD] if too_many else b""
        yield head + TOO_LARGE if head else line


async def _skipped_line(reader: asyncio.StreamReader) -> bytes:
    """Skip a line that is longer than the reader's buffer; return its head."""
    head = b""
    while True:
        try:
            part, ended = await reader.readuntil(), True
        except asyncio.LimitOverrunError as overrun:
            part, ended = await reader.readexactly(overrun.consumed), False
        except asyncio.IncompleteReadError as end:
            part, ended = end.partial, True
        head += part[: HEAD - len(head)]
        if ended:
            return head


class _Read(asyncio.streams.FlowControlMixin):
    """stdout as long as it is read: a client that closes it gets no answer, and is no longer served."""

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self._end = end

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end()


class Pipe:
    """The two methods of a text file that the SDK's writer calls."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        self._writer.write(text.encode())

    async def flush(self) -> None:
        with contextlib.suppress(ConnectionError):  # there is no reader any more
            await self._writer.drain()


async def _output(wire: int, end: Callable[[], None]) -> anyio.AsyncFile[str]:
    if not _is_pipe(wire):
        return anyio.wrap_file(os.fdopen(os.dup(wire), "w", encoding="utf-8"))
    loop = asyncio.get_running_loop()
    file = os.fdopen(os.dup(wire), "wb")
    transport, protocol = await loop.connect_write_pipe(lambda: _Read(end), file)
    return cast("anyio.AsyncFile[str]", Pipe(asyncio.StreamWriter(transport, protocol, None, loop)))


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class Answered:
    """The SDK's read stream, with an answer for the lines that it would drop because their JSON is invalid."""

    def __init__(self, read: Any, write: Any, reply: Reply) -> None:
        self._read, self._write, self._reply = read, write, reply

    async def __aiter__(self) -> AsyncIterator[SessionMessage]:
        async for item in self._read:
            if isinstance(item, Exception):
                await self._write.send(SessionMessage(_answer(item, self._reply)))
            else:
                yield item

    async def aclose(self) -> None:
        await self._read.aclose()


def _answer(error: Exception, reply: Reply) -> JSONRPCResponse | JSONRPCError:
    """Return the answer to a line: a tool's result for a call of a tool, else JSON-RPC's parse error."""
    line = error.errors()[0]["input"] if isinstance(error, ValidationError) else ""
    text = line.decode(errors="replace") if isinstance(line, bytes) else str(line)
    request_id = _request_id(text)
    error = invalid("This is not JSON that can be taken: check its syntax, nesting, numbers and escapes.")
    if text.endswith(TOO_LARGE.decode()):
        error = NexusError(Code.CONTENT_TOO_LARGE, "This message is larger, or holds more values, than any call takes.")
    if request_id is not None and re.search(r'"method"\s*:\s*"tools/call"', text):
        answer = wire(reply, Outcome(error=error))
        return JSONRPCResponse(jsonrpc="2.0", id=request_id, result=answer)
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=error.message))


def _request_id(text: str) -> RequestId | None:
    """Return the id of a request that cannot be parsed as a whole; in practice, JSON-RPC's envelope comes first."""
    found = re.search(r'"id"\s*:\s*("(?:[^"\\]|\\.){0,200}"|-?[0-9]{1,18})', text)
    return cast(RequestId, json.loads(found[1])) if found else None
