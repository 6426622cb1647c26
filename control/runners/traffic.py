"""What goes between a model's provider and an agent, as it was: one file of JSON lines for each agent.

Whose traffic it is, a context variable tells, so that agents who share a process never mix. Keys are struck, each line
and each file is bounded: a full file becomes `<agent>.jsonl.1`, in place of the one before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from pathlib import Path

import httpx2

from control.runners.secrets import Secrets
from core.clock import iso, now
from core.config import CoreSettings
from core.logs import redact

DIRECTORY = Path("logs") / "pool"  # below the home
LARGEST_FILE = 10 * 1024 * 1024  # bytes
LONGEST = 128 * 1024  # characters of a text: of what is read at once, and of the line that it goes on with
MOST_RECEIVED = 16 * 1024 * 1024  # bytes of one answer
KEY = re.compile(r"\b(nxk_|sk-)[A-Za-z0-9_-]{16,}")


class TooLong(Exception):
    """A provider that does not stop."""


class Log:
    """The file of one agent; `secrets` are struck from all that it holds."""

    def __init__(self, agent_id: str, *secrets: str) -> None:
        self.path = CoreSettings.current().home / DIRECTORY / f"{agent_id}.jsonl"
        self.secrets = Secrets(*secrets)
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, what: str, text: str, **more: str | int) -> None:
        """Append a line; a disk that is full stops no turn."""
        line = {"at": iso(now()), "what": what, **more, "text": self.struck(text)[:LONGEST]}
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode(errors="replace")
        with contextlib.suppress(OSError):
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as written:
                if written.tell() + len(data) > LARGEST_FILE:
                    self.path.replace(f"{self.path}.1")
                written.write(data)

    def struck(self, text: str) -> str:
        """A text without keys."""
        return KEY.sub(r"\1***", redact(self.secrets.struck(text)))


CURRENT: ContextVar[Log | None] = ContextVar("whose traffic it is", default=None)


@contextlib.contextmanager
def of(agent_id: str, *secrets: str) -> Iterator[Log]:
    """Within, what this task sends and gets is this agent's."""
    log = Log(agent_id, *secrets)
    token = CURRENT.set(log)
    try:
        yield log
    finally:
        CURRENT.reset(token)


def told(text: str, most: int) -> str:
    """The beginning of a text, without the keys of whoever's traffic this is."""
    log = CURRENT.get()
    return (text if log is None else log.struck(text))[:most]


class Recording(httpx2.AsyncBaseTransport):
    """Sends as another transport does, and records it for whoever's it is."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self.inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        log = CURRENT.get()
        if log is not None:
            body = (await request.aread()).decode(errors="replace")
            log.write("request", body, method=request.method, url=log.struck(str(request.url)))
        response = await self.inner.handle_async_request(request)
        if log is not None:
            log.write("response", "", status=response.status_code)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Recorded(response.stream, log)
        return response

    async def aclose(self) -> None:
        await self.inner.aclose()


class _Recorded(httpx2.AsyncByteStream):
    """An answer as it comes: recorded in whole lines, those that came together at once, and ended where it does not
    end."""

    def __init__(self, inner: httpx2.AsyncByteStream, log: Log | None) -> None:
        self.inner, self.log = inner, log

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received, line = 0, b""
        try:
            async for data in self.inner:
                received += len(data)
                if received > MOST_RECEIVED:
                    raise TooLong(f"an answer of over {MOST_RECEIVED} bytes")
                whole, _, line = (line + data).rpartition(b"\n")
                self._record(whole)
                if len(line) > LONGEST // 2:
                    line = self._record_sure(line)
                yield data
        finally:
            self._record(line)

    def _record_sure(self, line: bytes) -> bytes:
        """Record a line that goes on but for its end, which may be the beginning of a key: that is given back."""
        text = line.decode(errors="replace")
        sure = len(text) if self.log is None else self.log.secrets.settled(text)
        self._record(text[:sure].encode())
        return text[sure:].encode()

    def _record(self, lines: bytes) -> None:
        if self.log is not None and lines.strip():
            self.log.write("received", lines.decode(errors="replace"))

    async def aclose(self) -> None:
        await self.inner.aclose()
