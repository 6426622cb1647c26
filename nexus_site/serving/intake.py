"""Parsing of arriving data in small steps: many requests at once must not block the event loop for others.

A request gets its slot (nexus/core/fairness.py) once its head is parsed. Thousands that arrive together take seconds to
parse, so parsing rotates among their callers, too, for a few milliseconds in each round of the event loop.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any

from nexus.core.access import ConnectionInfo, address_name, caller_name

BUDGET_SECONDS = 0.005  # of parsing in one round of the event loop
HEAD_BYTES = 8192  # of the data are searched for its sender
SHOWN = re.compile(rb"\r\n(authorization|x-api-key|cookie):[ \t]*([^\r\n]*)", re.IGNORECASE)
MOST_KNOWN = 1000

# by the visible headers: the recognised caller, to save look-ups in a flood of requests
_known: dict[tuple[object, ...], str] = {}


class Intake:
    """Queues of data to parse, one for each caller; `budget` is in seconds per round."""

    def __init__(self, budget: float = BUDGET_SECONDS) -> None:
        self._budget = budget
        self._lines: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()  # the next one first
        self._spent = 0.0
        self._is_round_due = False

    @property
    def is_free(self) -> bool:
        """Whether data may be parsed at once."""
        return not self._lines and self._spent < self._budget

    def parse(self, work: Callable[[], None]) -> None:
        """Do the work now."""
        started = time.perf_counter()
        try:
            work()
        finally:
            self._spent += time.perf_counter() - started
            self._ask_for_round()

    def queue(self, caller: str, work: Callable[[], None]) -> None:
        """Do the work at this caller's turn; the work of one caller is done in order."""
        self._lines.setdefault(caller, deque()).append(work)
        self._ask_for_round()

    def _ask_for_round(self) -> None:
        if not self._is_round_due:
            self._is_round_due = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        self._is_round_due, self._spent = False, 0.0
        while self._lines:
            caller, line = next(iter(self._lines.items()))
            work = line.popleft()
            self._lines.move_to_end(caller)
            if not line:
                del self._lines[caller]
            self.parse(work)
            if self._spent >= self._budget:
                break


def sender(data: bytes, peer: str | None) -> str:
    """Return who sent the beginning of a request, as far as its first bytes show."""
    known = headers, query = _visible_headers(data)
    if not headers and not query:
        return address_name(peer)
    name = _known.get(known)
    if name is None:
        name = caller_name(_as_info(peer, headers, query))
        if not name.endswith(f":{peer}"):  # a known caller; a stranger may become known
            if len(_known) >= MOST_KNOWN:
                _known.clear()
            _known[known] = name
    return name


def _visible_headers(data: bytes) -> tuple[tuple[tuple[bytes, bytes], ...], bytes]:
    """Return the headers that may identify the sender, and the query."""
    head = data[:HEAD_BYTES]
    target = head.partition(b"\r\n")[0].split(b" ")[1:2]
    return tuple(SHOWN.findall(head)), target[0].partition(b"?")[2] if target else b""


def _as_info(peer: str | None, headers: Iterable[tuple[bytes, bytes]], query: bytes) -> ConnectionInfo:
    named = tuple((name.decode().lower(), value.decode("latin-1")) for name, value in headers)
    return ConnectionInfo(peer, named, query.decode("latin-1"))


class Receiving:
    """A connection's side of the intake: its data stays in order, and no more is read while some is queued."""

    def __init__(self, intake: Intake, transport: Any, protocol: Any) -> None:
        self._intake, self._transport, self._protocol = intake, transport, protocol
        self._parse = protocol.dataReceived
        self._queued = 0
        self._caller = ""

    def received(self, data: bytes) -> None:
        """Parse the data that arrived, now or later."""
        if not self._queued and self._intake.is_free:
            self._intake.parse(lambda: self._parse(data))
        else:
            self.put_off(data, lambda: self._deliver(data))

    def put_off(self, data: bytes, work: Callable[[], None]) -> None:
        """Do the work with `data` at its sender's turn."""
        if not self._queued:
            self._caller = sender(data, getattr(self._transport.getPeer(), "host", None))
        self._queued += 1
        self._transport.stopReading()
        self._intake.queue(self._caller, lambda: self._later(work))

    def _later(self, work: Callable[[], None]) -> None:
        self._queued -= 1
        if self._transport.disconnected or not self._transport.connected:
            return
        self._transport.startReading()  # first, because delivered data may stop it for another reason
        work()

    def _deliver(self, data: bytes) -> None:
        now = self._transport.protocol  # a WebSocket's, after an upgrade
        (self._parse if now is self._protocol else now.dataReceived)(data)
