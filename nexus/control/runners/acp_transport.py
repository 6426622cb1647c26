"""Messages of the Agent Client Protocol over a process's pipes, with limits, because the agent is not trusted.

The protocol's own reader accepts lines of any length and logs whatever it does not know.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from acp.schema import SessionNotification
from pydantic import ValidationError

from nexus.control.runners.acp_session import MODELS, SET_MODEL
from nexus.control.runners.processes import OutputLines, Overdone
from nexus.control.runners.traffic import Wire

LONGEST_LINE = 16 * 1024 * 1024  # bytes
MOST_STRUCTURE = 1024 * 1024  # bytes of a line outside its strings: parsing them costs fifty times as much
MOST_BYTES = 256 * 1024 * 1024  # of a turn
MOST_NONSENSE = 100  # lines of a turn that are not messages: many programs greet on stdout
MOST_OPEN = 256  # requests of the agent's at once
UPDATE = "session/update"


class BoundedLines:
    """A transport for the protocol's connection. If the agent exceeds a limit, `failed` says which, and the stream
    ends."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        settled: Callable[[], Awaitable[None]],
        wire: Wire | None = None,
    ) -> None:
        """`settled` returns when all messages so far are stored: no message is read before. `wire` logs them."""
        self._writer, self._settled, self._wire = writer, settled, wire
        self._lines = OutputLines(reader, longest=LONGEST_LINE, structure=MOST_STRUCTURE, most=MOST_BYTES)
        self._nonsense = 0
        self._open: set[str] = set()  # ids of unanswered requests
        self.failed: Overdone | None = None

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises ConnectionError for a request to an agent that has ended."""
        if message.get("method") == f"_{SET_MODEL}":
            message = {**message, "method": SET_MODEL}  # without the mark of extensions
        if self._wire is not None:
            self._wire.sent(message)
        if "method" not in message:
            self._open.discard(json.dumps(message.get("id")))
        try:
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._writer.drain()
        except ConnectionError:
            if "method" in message:
                raise  # nobody waits for an answer

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        while self.failed is None:
            await self._settled()
            try:
                line = await self._lines.next()
                if line is None:
                    return None
                message = self._received(line)
            except Overdone as overdone:
                self.failed = overdone
            except ConnectionError:
                return None
            else:
                if message is not None:
                    return message
        return None

    def _received(self, line: bytes) -> dict[str, Any] | None:
        message = None
        try:
            message = self._message(line)
        finally:
            if self._wire is not None and line.strip():
                self._wire.received(line, message)
        return message

    async def close(self) -> None:
        """Do nothing: the pipes belong to the process, which closes them."""

    def _message(self, line: bytes) -> dict[str, Any] | None:
        """Return the message in a line; None if it is to be ignored. Raises Overdone."""
        if not line.strip():
            return None
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict) or not ({"method", "id"} & message.keys()):
            self._count_nonsense()
            return None
        method, named = message.get("method"), message.get("id")
        if not isinstance(method, str | None) or not isinstance(named, int | str | None):
            self._count_nonsense()
            return None
        if method is None:
            if not isinstance(message.get("error"), dict | None):  # the protocol's reader fails on this
                raise Overdone("it answered with an error that is none")
            _keep_models(message.get("result"))
            return message
        if "id" in message:
            self._open.add(json.dumps(named))
            if len(self._open) > MOST_OPEN:
                raise Overdone(f"it asked for over {MOST_OPEN} things at once")
            return message
        if method != UPDATE:
            return None  # unused notifications
        try:
            SessionNotification.model_validate(message.get("params"))
        except ValidationError:
            return None  # invalid, or of a later protocol: ignored
        return message

    def _count_nonsense(self) -> None:
        self._nonsense += 1
        if self._nonsense > MOST_NONSENSE:
            raise Overdone(f"it sent over {MOST_NONSENSE} lines that the protocol does not know")


def _keep_models(result: Any) -> None:
    """Move the models of an opened session to where the SDK keeps them."""
    if isinstance(result, dict) and "models" in result:
        meta = result.get("_meta")
        result["_meta"] = {**(meta if isinstance(meta, dict) else {}), MODELS: result["models"]}
