"""What agents are just writing, as the pool's worker tells it: in the memory of the server that runs it, bounded.

A listener keeps a place in the text and is given what is behind it, so that one who is slow, or comes late, gets more
at once and nothing is kept for it. Nothing here is durable: the entry of the transcript replaces its draft.
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
    """The text of the entry that will stand at `position`, as far as it is written, and its turn's tokens so far."""

    request_id: str
    position: int
    text: str
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Piece:
    """What a listener is told of a draft: `text` from `offset` on. At 0 it begins anew."""

    request_id: str
    position: int
    offset: int
    text: str
    input_tokens: int
    output_tokens: int


class Drafts:
    """By pool_agent_id, the draft of each agent that is writing."""

    def __init__(self) -> None:
        self._drafts: dict[str, Draft] = {}
        self._wakes: dict[str, set[Callable[[], None]]] = defaultdict(set)

    def hear(self, line: bytes) -> None:
        """Take in what the worker says (`nexus.control.worker.reports`): one piece, or that an agent writes no more."""
        try:
            agent = self._take_in(json.loads(line))
        except (ValueError, TypeError, KeyError):  # something in the worker printed before its output was its line
            return
        for wake in self._wakes.get(agent, ()):
            wake()

    def _take_in(self, said: dict[str, Any]) -> str:
        """The agent of whom it was said."""
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
        """The worker has ended, and nobody writes."""
        self._drafts.clear()

    @contextmanager
    def listened(self, pool_agent_id: str, wake: Callable[[], None]) -> Iterator[Listener]:
        """A listener, which is woken whenever this agent wrote."""
        wakes = self._wakes[pool_agent_id]
        wakes.add(wake)
        try:
            yield Listener(self._drafts, pool_agent_id)
        finally:
            wakes.discard(wake)
            if not wakes:
                self._wakes.pop(pool_agent_id, None)


class Listener:
    """One client's place in what an agent is writing."""

    def __init__(self, drafts: dict[str, Draft], pool_agent_id: str) -> None:
        self._drafts, self._agent = drafts, pool_agent_id
        self._draft: Draft | None = None  # which was told
        self._told: tuple[int, int, int] | None = None  # characters of it, and tokens

    def next(self, request_id: str | None, position: int) -> Piece | None:
        """What is new, for who was told that this turn runs, and the entries before `position`; None where nothing is.

        So a draft never comes after the entry or the end that replaces it, nor before what stands before it.
        """
        draft = self._drafts.get(self._agent)
        if draft is None or (draft.request_id, draft.position) != (request_id, position):
            return None
        if draft is not self._draft:
            self._draft, self._told = draft, None
        now = (len(draft.text), draft.input_tokens, draft.output_tokens)
        if now == self._told:
            return None
        offset = self._told[0] if self._told else 0
        self._told = now
        return Piece(draft.request_id, position, offset, draft.text[offset:], draft.input_tokens, draft.output_tokens)


DRAFTS = Drafts()
