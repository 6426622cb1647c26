"""Reports of drafts to the hub, on the worker's standard output: one line of JSON for each piece.

A report is a state, not a queue: if the hub reads slowly, the next line waits and holds more. So nothing grows, and a
model that answers in thousands of pieces causes a few lines a second.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import DatabaseError

from nexus.control.models import Entry, Role, Turn
from nexus.control.runners.base import Draft
from nexus.control.services import transcript
from nexus.core.waiting import READERS, in_thread

PAUSE_SECONDS = 0.1  # between two lines about an agent
LONGEST_PIECE = 16_384  # characters of a line
MOST_BEHIND = 256 * 1024  # bytes that wait for the hub to read them
Report = Callable[[dict[str, Any]], bool]  # returns False if the report has to wait


def to_nobody(message: dict[str, Any]) -> bool:
    """Drop the report: no hub listens."""
    return True


async def to_hub() -> Report:
    """Return the function that reports to the hub. Everything else that is printed goes to standard error from now
    on."""
    line = os.fdopen(os.dup(1), "wb", 0)  # not inherited by children
    os.dup2(2, 1)
    transport, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.Protocol, line)

    def report(message: dict[str, Any]) -> bool:
        if "text" in message and transport.get_write_buffer_size() > MOST_BEHIND:
            return False
        transport.write(json.dumps(message).encode() + b"\n")
        return True

    return report


class DraftReporter:
    """Reports the draft of one turn."""

    def __init__(self, turn: Turn, report: Report) -> None:
        self.turn, self.report = turn, report
        self.draft = Draft()
        self._position: int | None = None  # of the entry that is being written
        self._last: tuple[int, int] | None = None  # the draft, and its position, that was last reported
        self._reported = 0  # its reported characters
        self._tokens = (0, 0)

    def stored(self, entry: Entry) -> None:
        """Note that an entry was stored: the draft now belongs to the one after it."""
        self._position = entry.position + 1
        if entry.role == Role.ASSISTANT and entry.content:
            self.draft.restart()
        self.draft.changed.set()

    async def work(self) -> None:
        """Report changes until cancelled."""
        try:
            while True:
                await self.draft.changed.wait()
                self.draft.changed.clear()
                if not await self._is_placed() or not self._catch_up():
                    self.draft.changed.set()
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self.report({"agent": self.turn.agent_id})

    async def _is_placed(self) -> bool:
        """Return whether the position of the entry being written is known: from the store at first, then from stored
        entries."""
        if self._position is None:
            try:
                made = await in_thread(READERS, partial(transcript.made, self.turn.agent))
            except DatabaseError:
                return False
            self._position = max(made, self._position or 0)  # an entry may have been stored meanwhile
        return True

    def _catch_up(self) -> bool:
        """Report what is new; False if the hub has to read first."""
        assert self._position is not None
        text, tokens = self.draft.text, (self.draft.input_tokens, self.draft.output_tokens)
        which = (self.draft.begun, self._position)
        if which != self._last:
            self._reported = 0
        elif self._reported == len(text) and tokens == self._tokens:
            return True
        while True:
            piece = text[self._reported : self._reported + LONGEST_PIECE]
            is_sent = self.report(
                {
                    "agent": self.turn.agent_id,
                    "request_id": self.turn.request_id,
                    "position": self._position,
                    "offset": self._reported,
                    "text": piece,
                    "tokens": tokens,
                }
            )
            if not is_sent:
                return False
            self._last, self._tokens = which, tokens
            self._reported += len(piece)
            if self._reported == len(text):
                return True
