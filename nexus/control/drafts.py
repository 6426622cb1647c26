"""Drafts: the text that agents are writing right now, as the pool's worker reports it. They are kept in the memory of
the server that runs the worker, and are bounded.

A listener remembers its offset in the text and receives what follows. A slow or late listener gets more text at once,
so nothing is queued for it. Nothing is durable: the entry in the transcript replaces its draft.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Draft:
    """The text written so far of the entry that will stand at `position`, and the tokens of its turn so far."""

    request_id: str
    position: int
    text: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Piece:
    """A piece of a draft for one listener: `text` from `offset` on. Offset 0 starts the draft anew."""

    request_id: str
    position: int
    offset: int
    text: str
    input_tokens: int
    output_tokens: int


class Drafts:
    """The draft of each agent that is writing, by pool_agent_id."""

    def __init__(self) -> None:
        self._drafts: dict[str, Draft] = {}
        self._wakes: dict[str, set[Callable[[], None]]] = defaultdict(set)

    def hear(self, line: bytes) -> None:
        """Store a report of the worker (`nexus.control.worker.reports`): one piece, or that an agent has stopped
        writing."""
        try:
            agent = self._take_in(json.loads(line))
        except (ValueError, TypeError, KeyError):  # printed by the worker before stdout was for reports only
            return
        for wake in self._wakes.get(agent, ()):
            wake()

    def _take_in(self, said: dict[str, Any]) -> str:
        """Apply a report to the drafts and return its agent's pool_agent_id."""
        agent: str = said["agent"]
        if "text" not in said:
            self._drafts.pop(agent, None)
        elif said["offset"] == 0:
            self._drafts[agent] = Draft(said["request_id"], said["position"], said["text"], *said["tokens"])
        else:
            draft = self._drafts[agent]
            draft.text += said["text"]
            draft.input_tokens, draft.output_tokens = said["tokens"]
        return agent

    def clear(self) -> None:
        """Drop all drafts: the worker has ended."""
        self._drafts.clear()

    @contextmanager
    def listened(self, pool_agent_id: str, wake: Callable[[], None]) -> Iterator[Listener]:
        """Yield a listener for an agent; `wake` is called whenever the agent has written."""
        wakes = self._wakes[pool_agent_id]
        wakes.add(wake)
        try:
            yield Listener(self._drafts, pool_agent_id)
        finally:
            wakes.discard(wake)
            if not wakes:
                self._wakes.pop(pool_agent_id, None)


class Listener:
    """One client's position in the text that an agent is writing."""

    def __init__(self, drafts: dict[str, Draft], pool_agent_id: str) -> None:
        self._drafts, self._agent = drafts, pool_agent_id
        self._draft: Draft | None = None  # the draft that was last sent
        self._sent: tuple[int, int, int] | None = None  # its sent characters, and tokens

    def next(self, request_id: str | None, position: int) -> Piece | None:
        """Return the new text for a client that knows this running turn and the entries before `position`; None if
        there is none.

        So a draft never arrives after the entry or the end of turn that replaces it, nor before the entries before it.
        """
        draft = self._drafts.get(self._agent)
        if draft is None or (draft.request_id, draft.position) != (request_id, position):
            return None
        if draft is not self._draft:
            self._draft, self._sent = draft, None
        now = (len(draft.text), draft.input_tokens, draft.output_tokens)
        if now == self._sent:
            return None
        offset = self._sent[0] if self._sent else 0
        self._sent = now
        return Piece(draft.request_id, position, offset, draft.text[offset:], draft.input_tokens, draft.output_tokens)


DRAFTS = Drafts()
