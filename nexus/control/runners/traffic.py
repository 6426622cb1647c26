"""Logs of the unchanged traffic between a model's provider and an agent: one file of JSON lines for each agent.

A context variable says whose traffic it is, so that agents in one process never mix. Keys are redacted, and each line
and each file is bounded: a full file is renamed to `<agent>.jsonl.1`, which replaces the one before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar

import httpx2

from nexus.control.runners.base import LOGS, Secrets
from nexus.core.clock import iso, now
from nexus.core.config import CoreSettings
from nexus.core.logs import redact

LARGEST_FILE = 10 * 1024 * 1024  # bytes
LONGEST = 128 * 1024  # characters of a text
LONGEST_LINE = 64 * 1024  # bytes of a received line; the rest is left out
MOST_RECEIVED = 16 * 1024 * 1024  # bytes of one answer
KEY = re.compile(r"\b(nxk_|sk-|gh[a-z]_|github_pat_|glpat-|hf_|AIza|AKIA)[A-Za-z0-9_-]{16,}")
UNKNOWN = 64  # characters of a cut key; a longer part matches its pattern


class TooLong(Exception):
    """A provider's answer exceeds the limit."""


class Log:
    """The log of one agent; `secrets` are redacted."""

    def __init__(self, agent_id: str, *secrets: str) -> None:
        self.path = CoreSettings.current().home / LOGS / f"{agent_id}.jsonl"
        self.secrets = Secrets(*secrets)

    def write(self, what: str, text: str, **more: str | int) -> None:
        """Append a line. Errors of the disk are ignored, so that no turn fails because of its log."""
        clean = self.struck(text) if len(text) <= LONGEST else self.beginning(text[: 2 * LONGEST])
        line = {"at": iso(now()), "what": what, **more, "text": clean[:LONGEST]}
        data = (json.dumps(line, ensure_ascii=False) + "\n").encode(errors="replace")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as written:
                if written.tell() + len(data) > LARGEST_FILE:
                    self.path.replace(f"{self.path}.1")
                written.write(data)

    def struck(self, text: str) -> str:
        """Return the text with keys redacted."""
        return KEY.sub(r"\1***", redact(self.secrets.struck(text)))

    def beginning(self, text: str) -> str:
        """Return a text that was cut, with keys redacted, and without its end, which may hold a part of one."""
        return self.struck(text[: self.secrets.settled(text)])[:-UNKNOWN]


CURRENT: ContextVar[Log | None] = ContextVar("whose traffic it is", default=None)


@contextlib.contextmanager
def of(agent_id: str, *secrets: str) -> Iterator[Log]:
    """Log this task's traffic as the agent's within the block."""
    log = Log(agent_id, *secrets)
    token = CURRENT.set(log)
    try:
        yield log
    finally:
        CURRENT.reset(token)


def excerpt(text: str, most: int) -> str:
    """Return the beginning of a text, with the keys of the current agent redacted."""
    log = CURRENT.get()
    return (text if log is None else log.struck(text))[:most]


class Recording(httpx2.AsyncBaseTransport):
    """A transport that sends through another one and logs the traffic of the current agent."""

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
    """A response body that is logged as it arrives: in whole lines, those that arrive together at once, and only the
    beginning of a line that is too long. A body that exceeds the limit is ended with TooLong."""

    def __init__(self, inner: httpx2.AsyncByteStream, log: Log | None) -> None:
        self.inner, self.log = inner, log

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received, line, is_cut = 0, b"", False
        try:
            async for data in self.inner:
                received += len(data)
                if received > MOST_RECEIVED:
                    raise TooLong(f"an answer of over {MOST_RECEIVED} bytes")
                _, newline, behind = data.partition(b"\n") if is_cut else (b"", b"", data)
                is_cut = is_cut and not newline
                whole, _, line = (line + behind).rpartition(b"\n")
                self._record(whole)
                if len(line) > LONGEST_LINE:
                    self._record_beginning(line)
                    line, is_cut = b"", True
                yield data
            self._record(line)
            line = b""
        finally:
            self._record_beginning(line)

    def _record(self, lines: bytes) -> None:
        if self.log is not None and lines.strip():
            self.log.write("received", lines.decode(errors="replace"))

    def _record_beginning(self, line: bytes) -> None:
        """Log the beginning of a line whose rest is left out or never comes."""
        if self.log is not None and line:
            self.log.write("received", self.log.beginning(line.decode(errors="replace")), rest="left out")

    async def aclose(self) -> None:
        await self.inner.aclose()
