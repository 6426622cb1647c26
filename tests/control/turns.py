"""Turns of a runner, played without a worker: what it says and asks is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nexus.control.agents import pool, transcript, turns
from nexus.control.agents.questions import Decision
from nexus.control.agents.turns import Ended
from nexus.control.models import Entry, PoolAgent, Role, Turn, TurnStatus
from nexus.control.permissions.members import Actor
from nexus.control.permissions.rules import Action, Rule
from nexus.control.runners.base import Draft, Scene
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.waiting import WRITERS, in_thread

ADMIN = Actor("ops")


@dataclass
class Played:
    """An agent and what it was asked to say; `asked` are the questions for people, which `decide` answers."""

    agent: PoolAgent
    runner: Any
    take: Callable[[Any, Scene], Awaitable[Ended]]
    decide: Callable[[str], bool] = lambda subject: False
    is_anybody_there: bool = True  # to answer them
    asked: list[str] = field(default_factory=list)
    heard: asyncio.Event = field(default_factory=asyncio.Event)  # an entry was said
    read: list[Entry] = field(default_factory=list)  # of the transcript, by the runner
    known: Sequence[Rule] = ()  # rules of permissions
    draft: Draft = field(default_factory=Draft)  # all that was written: what is said takes nothing away

    async def turn(self, content: str) -> Ended:
        """Take a turn to its end, as a worker does."""
        turn = await in_thread(WRITERS, lambda: self._claim(content))
        known = await in_thread(WRITERS, lambda: list(Entry.objects.in_context().filter(agent=self.agent)))
        scene = Scene(
            self.agent,
            turn,
            partial(newest_first, known, self.read),
            self._say(turn),
            self._ask,
            self._call,
            self.draft,
            rules=self._rules,
        )
        ended = Ended(TurnStatus.FAILED, why="the test tells")
        try:
            ended = await self.take(self.runner, scene)
            return ended
        finally:
            await in_thread(WRITERS, lambda: turns.settle_turn(turn, ended))

    def _claim(self, content: str) -> Turn:
        sent = turns.send(ADMIN, self.agent.agent_id, content=content, request_id=None, source="rpc")
        turn = turns.claim(sent.pk)
        assert turn is not None
        return turn

    def _say(self, turn: Turn) -> Any:
        async def say(
            role: Role, content: str, *, tool_call_id: str | None = None, meta: Mapping[str, Any] | None = None
        ) -> None:
            def append() -> None:
                with write():
                    transcript.append(
                        turn.agent, turn, role, content, moment=now(), tool_call_id=tool_call_id, meta=meta
                    )

            await in_thread(WRITERS, append)
            self.heard.set()

        return say

    async def _ask(self, kind: str, title: str, detail: str, *, subject: str, action: Action | None = None) -> Decision:
        self.asked.append(subject)
        if not self.is_anybody_there:
            await asyncio.Event().wait()
        return Decision(self.decide(subject))

    async def _rules(self) -> Sequence[Rule]:
        return self.known

    async def _call(self, toolset: str, name: str, arguments: Mapping[str, Any]) -> Any:
        raise AssertionError("this runner calls by itself")

    async def entries(self) -> Sequence[Entry]:
        """The transcript, without what was sent."""
        said = Entry.objects.filter(agent=self.agent).exclude(role=Role.USER).order_by("position")
        return await in_thread(WRITERS, lambda: list(said))


async def newest_first(entries: Sequence[Entry], read: list[Entry] | None = None) -> AsyncIterator[Entry]:
    """What a runner is given of a transcript; `read` tells how much of it was."""
    for entry in reversed(entries):
        if read is not None:
            read.append(entry)
        yield entry


def create(agent_id: str, cwd: str, **more: Any) -> PoolAgent:
    """An agent of the pool."""
    given = {"preset": "sandboxed", "write_paths": None, "disabled_tools": (), "parent_agent_id": None}
    return pool.create(ADMIN, pool.Order(**{**given, "agent_id": agent_id, "cwd": cwd, "runner": "agent", **more}))[0]
