"""Records the HTTP traffic with a model's provider, unchanged, in the log of an agent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2

from nexus.control.runners.traffic import Log

LONGEST_LINE = 64 * 1024  # bytes of a received line; the rest is left out
MOST_RECEIVED = 16 * 1024 * 1024  # bytes of one answer


class TooLong(Exception):
    """A provider's answer exceeds the limit."""


class Recording(httpx2.AsyncBaseTransport):
    """A transport that sends through another one and logs the traffic."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, log: Log) -> None:
        self.inner, self.log = inner, log

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = (await request.aread()).decode(errors="replace")
        self.log.write("request", body, method=request.method, url=self.log.struck(str(request.url)))
        response = await self.inner.handle_async_request(request)
        self.log.write("response", "", status=response.status_code)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Recorded(response.stream, self.log)
        return response

    async def aclose(self) -> None:
        await self.inner.aclose()


class _Recorded(httpx2.AsyncByteStream):
    """A response body that is logged as it arrives: in whole lines, those that arrive together at once, and only the
    beginning of a line that is too long. A body that exceeds the limit is ended with TooLong."""

    def __init__(self, inner: httpx2.AsyncByteStream, log: Log) -> None:
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
        if lines.strip():
            self.log.write("received", lines.decode(errors="replace"))

    def _record_beginning(self, line: bytes) -> None:
        """Log the beginning of a line whose rest is left out or never comes."""
        if line:
            self.log.write("received", self.log.beginning(line.decode(errors="replace")), rest="left out")

    async def aclose(self) -> None:
        await self.inner.aclose()
