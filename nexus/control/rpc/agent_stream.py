"""One agent of the pool live: the loop behind its server-sent events and its WebSocket (docs/how-to/run-a-pool.md).

The transcript is the buffer: a follower reads page after page from its position and parks on the waiter at the end. A
slow or returning client continues at its position, so nothing is queued for it. Drafts are sent in between, from the
server's memory alone.

A draft is the text that an agent is writing right now, as the pool's worker reports it. Drafts are kept in the memory
of the server that runs the worker, and are bounded. A listener remembers its offset in the text and receives what
follows. A slow or late listener gets more text at once, so nothing is queued for it. Nothing is durable: the entry in
the transcript replaces its draft.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from typing_extensions import TypedDict

from coordination.log.selectors import interest_in
from nexus.control.agents import transcript
from nexus.control.models import STREAM, Entry, PoolAgent, Turn, TurnStatus
from nexus.control.permissions.members import actor_of, check_authority
from nexus.control.toolset import must_run
from nexus.core.clock import iso
from nexus.core.database.store import unless_busy
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import invalid, not_found
from nexus.core.operations.parameters import whole_number
from nexus.core.waiting import READERS, Parked, in_thread, waiter


@dataclass
class ReportedDraft:
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
        self._drafts: dict[str, ReportedDraft] = {}
        self._wakes: dict[str, set[Callable[[], None]]] = defaultdict(set)

    def hear(self, line: bytes) -> None:
        """Store a report of the worker (`nexus.control.worker.execution`): one piece, or that an agent has stopped
        writing. A sign of life names no agent, and nothing is stored."""
        try:
            agent = self._apply(json.loads(line))
        except (ValueError, TypeError, KeyError):  # that, or printed before stdout was for reports only
            return
        for wake in self._wakes.get(agent, ()):
            wake()

    def _apply(self, said: dict[str, Any]) -> str:
        """Apply a report to the drafts and return its agent's pool_agent_id. Raises KeyError, TypeError."""
        agent: str = said["agent"]
        if "text" not in said:
            self._drafts.pop(agent, None)
        elif said["offset"] == 0:
            self._drafts[agent] = ReportedDraft(said["request_id"], said["position"], said["text"], *said["tokens"])
        else:
            draft = self._drafts[agent]
            draft.text += said["text"]
            draft.input_tokens, draft.output_tokens = said["tokens"]
        return agent

    def clear(self) -> None:
        """Drop all drafts: the worker has ended."""
        self._drafts.clear()

    @contextmanager
    def listened(self, pool_agent_id: str, wake: Callable[[], None]) -> Iterator[DraftListener]:
        """Yield a listener for an agent; `wake` is called whenever the agent has written."""
        wakes = self._wakes[pool_agent_id]
        wakes.add(wake)
        try:
            yield DraftListener(self._drafts, pool_agent_id)
        finally:
            wakes.discard(wake)
            if not wakes:
                self._wakes.pop(pool_agent_id, None)


class DraftListener:
    """One client's position in the text that an agent is writing."""

    def __init__(self, drafts: dict[str, ReportedDraft], pool_agent_id: str) -> None:
        self._drafts, self._agent = drafts, pool_agent_id
        self._draft: ReportedDraft | None = None  # the draft that was last sent
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


PAGE = 100  # entries read at once
HEARTBEAT_SECONDS = 15  # of silence until a heartbeat
LOOK_SECONDS = 1  # at most, between two reads of the store while an agent writes: a key may be revoked
AGAIN_SECONDS = 1  # before a failed read is retried
PLACE = re.compile(r"(?:(pool_\w{1,100}):)?([0-9]{1,10})", re.ASCII)


class EntryRow(TypedDict):
    position: int
    role: str
    content: str
    tool_call_id: str | None
    meta: Any
    request_id: str | None
    tokens: int
    created_at: str


class LastTurn(TypedDict):
    request_id: str
    status: str
    why: str | None
    halted: bool
    input_tokens: int
    output_tokens: int


class AgentState(TypedDict):
    """An agent's current state: its turns, and whether it has ended."""

    running: str | None  # its turn's request_id
    waiting: int
    last: LastTurn | None
    ended: bool


@dataclass(frozen=True)
class Position:
    """A follower's position: the agent, and how many entries of its transcript the client has."""

    agent: PoolAgent
    after: int

    def __str__(self) -> str:
        return f"{self.agent.pk}:{self.after}"


def start_of(caller: Caller, agent_id: str, given: str | None) -> Position:
    """Return the position that a client gives, as `AGENT:NUMBER` or a number alone; the beginning if it gives none.

    Names are reused: with `AGENT` a client continues in the transcript that it began. Raises VALIDATION_ERROR,
    NOT_FOUND if no agent had this name, and the errors of `may_follow`.
    """
    found = PLACE.fullmatch(given or "0")
    if found is None or whole_number(found[2]) is None:
        raise invalid("after, or Last-Event-ID, must be the id of a message of this stream or a number.", field="after")
    must_run()
    actor_of(caller)  # before any look-up: who is no member learns no names
    bearers = PoolAgent.objects.filter(agent_id=agent_id)
    if found[1]:
        bearers = bearers.filter(pk=found[1])
    agent = bearers.order_by("-pool_agent_id").first()
    if agent is None:
        raise not_found("pool agent", agent_id[:200])
    may_follow(caller, agent)
    return Position(agent, int(found[2]))


def may_follow(caller: Caller, agent: PoolAgent) -> None:
    """Check that the caller may read the agent. Raises NOT_PERMITTED, POOL_OFF."""
    must_run()
    check_authority(actor_of(caller), agent, "look into")


def is_over(position: Position) -> bool:
    """Return whether nothing can come after a position any more."""
    rest = Entry.objects.filter(agent=position.agent, position__gte=position.after)
    return state_of(position.agent)["ended"] and not rest.exists()


class Follower:
    """One client's position. `identify` is called for every page: meanwhile a key may be revoked or a parent may
    end."""

    def __init__(self, identify: Callable[[], Caller], position: Position) -> None:
        self.identify = identify
        self.position = position
        self.sent_state: AgentState | None = None
        self._is_news = self._is_written = False  # why it is woken: the store has more, or the agent wrote

    async def follow(self) -> AsyncGenerator[Entry | AgentState | Piece | None, None]:
        """Yield each entry in order; the state when it has changed, after all entries that it knows of; pieces of the
        agent's draft; and None after a silence.

        A piece belongs to the next entry. An entry replaces the pieces before it, and so does a state in which the
        piece's turn no longer runs. `position` is the one after all items before the current one: a client resumes
        there. Ends when the agent has ended and all its entries were sent, and when the server shuts down. Raises
        NexusError when the caller may no longer follow.
        """
        loop = asyncio.get_running_loop()
        async with waiter().park(interest_in(STREAM, "pool_agent_id", self.position.agent.pk, self._note)) as parked:
            with DRAFTS.listened(self.position.agent.pk, partial(self._hear, parked)) as listener:
                while not waiter().closing:
                    self._is_news, looked = False, loop.time()
                    look = None
                    with unless_busy():
                        look = await in_thread(READERS, self._look)
                    if look is None:
                        yield None
                        await parked.wait(AGAIN_SECONDS)
                        continue
                    state, entries, is_all = look
                    for entry in entries:
                        yield entry
                        self.position = Position(self.position.agent, entry.position + 1)
                    if not is_all:
                        continue
                    if state != self.sent_state:
                        self.sent_state = state
                        yield state
                    if state["ended"]:
                        return
                    while not waiter().closing:
                        self._is_written = False
                        if (piece := listener.next(state["running"], self.position.after)) is not None:
                            yield piece
                        if not await parked.wait(HEARTBEAT_SECONDS):
                            yield None
                        if self._is_news or not self._is_written or loop.time() >= looked + LOOK_SECONDS:
                            break

    def _note(self, event: Any) -> bool:
        self._is_news = True
        return True

    def _hear(self, parked: Parked) -> None:
        self._is_written = True
        parked.wake()

    def _look(self) -> tuple[AgentState, list[Entry], bool]:
        """Return the state, a page of entries, and whether these are all. The state is read first: the entries that it
        knows of are stored by then and are sent before it."""
        may_follow(self.identify(), self.position.agent)
        state = state_of(self.position.agent)
        rows = Entry.objects.filter(agent=self.position.agent, position__gte=self.position.after).select_related("turn")
        return state, *transcript.page(rows.defer("turn__content", "turn__answer").order_by("position"), PAGE)


def state_of(agent: PoolAgent) -> AgentState:
    """Return an agent's current state. Read by index, so it does not slow down with the number of turns."""
    ended = not PoolAgent.objects.living().filter(pk=agent.pk).exists()
    turns = Turn.objects.filter(agent=agent)
    open_ones = list(turns.open().values_list("status", "request_id"))
    last = turns.ended().defer("content", "answer").order_by("-ended_at", "-turn_id").first()
    running = next((request_id for status, request_id in open_ones if status == TurnStatus.RUNNING), None)
    return {
        "running": running,
        "waiting": sum(status == TurnStatus.QUEUED for status, _ in open_ones),
        "last": _last(last) if last else None,
        "ended": ended and running is None,
    }


def _last(turn: Turn) -> LastTurn:
    return {
        "request_id": turn.request_id,
        "status": turn.status,
        "why": turn.why,
        "halted": turn.halted,
        "input_tokens": turn.input_tokens,
        "output_tokens": turn.output_tokens,
    }


def entry_row(entry: Entry) -> EntryRow:
    """Return an entry in the shape of a stream's message."""
    return {
        "position": entry.position,
        "role": entry.role,
        "content": entry.content,
        "tool_call_id": entry.tool_call_id,
        "meta": entry.meta,
        "request_id": entry.turn.request_id if entry.turn else None,
        "tokens": entry.tokens,
        "created_at": iso(entry.created_at),
    }
