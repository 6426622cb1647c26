"""Turns for a runner to take, without a worker around it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from nexus.control.agents import pool, transcript, turns
from nexus.control.agents.questions import Decision
from nexus.control.agents.turns import Ended
from nexus.control.models import Entry, PoolAgent, Role, Turn
from nexus.control.permissions import operator_rules
from nexus.control.permissions.members import Actor
from nexus.control.permissions.rules import Action, Rule
from nexus.control.runners.base import Scene
from nexus.control.runners.model import take
from nexus.control.runners_file import Model
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations import dispatch as operations
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import TOOLSETS
from nexus.core.operations.replies import Outcome
from nexus.core.waiting import READERS, WRITERS, in_thread
from tests.control.turns import newest_first

OPERATOR = Actor("ada")


def small(base_url: str, **more: Any) -> Model:
    """A runner over the tests' server."""
    given = {"kind": "model", "name": "small", "model": "openai:small", "base_url": base_url, "stall_seconds": 60}
    return Model.model_validate({**given, "context_tokens": 100_000, "reply_tokens": 1_000, **more})


@dataclass
class Stage:
    """An agent, and what happens in its turns."""

    agent: PoolAgent
    decisions: list[Decision] = field(default_factory=list)  # what a person says, in order; then no
    asked: list[tuple[str, str, str]] = field(default_factory=list)

    async def turn(self, content: str) -> Turn:
        """A turn that was claimed."""

        def begun() -> Turn:
            turns.send(OPERATOR, self.agent.agent_id, content=content, request_id=None, source="rpc")
            turn = Turn.objects.select_related("agent").filter(agent=self.agent, status="queued").get()
            moment = now()
            with write():
                turn.status, turn.started_at = "running", moment
                turn.save()
                transcript.append(turn.agent, turn, Role.USER, content, moment=moment)
            return turn

        return await in_thread(WRITERS, begun)

    async def scene(self, turn: Turn) -> Scene:
        """What a runner is given."""
        known = await in_thread(READERS, lambda: list(Entry.objects.in_context().filter(agent=self.agent)))
        return Scene(
            turn.agent,
            turn,
            partial(newest_first, known),
            partial(self._say, turn),
            self._ask,
            self._call,
            rules=self._rules,
        )

    async def take(self, runner: Model, content: str) -> Ended:
        """Take a whole turn."""
        turn = await self.turn(content)
        ended = await take(runner, await self.scene(turn))
        await in_thread(WRITERS, lambda: turns.settle_turn(turn, ended))
        return ended

    async def said(self) -> list[tuple[str, str]]:
        """Roles and texts of the transcript; calls as `name(arguments)`."""

        def read() -> list[tuple[str, str]]:
            return [
                (entry.role, _shown(entry)) for entry in Entry.objects.filter(agent=self.agent).order_by("position")
            ]

        return await in_thread(READERS, read)

    async def _say(
        self,
        turn: Turn,
        role: Role,
        content: str,
        *,
        tool_call_id: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        def append() -> None:
            with write():
                transcript.append(
                    turn.agent, turn, role, content, moment=now(), tool_call_id=tool_call_id, meta=meta, announce=True
                )

        await in_thread(WRITERS, append)

    async def _ask(self, kind: str, title: str, detail: str, *, subject: str, action: Action | None = None) -> Decision:
        self.asked.append((kind, title, subject))
        return self.decisions.pop(0) if self.decisions else Decision(False, "nobody is here")

    async def _rules(self) -> Sequence[Rule]:
        return await in_thread(READERS, partial(operator_rules.holding, self.agent.agent_id, self.agent))

    async def _call(self, toolset: str, name: str, arguments: Mapping[str, Any]) -> Outcome:
        caller = Caller("pool", agent_id=self.agent.agent_id, connection=f"pool:{self.agent.pk}")
        return await operations.aperform(TOOLSETS[toolset], caller, name, arguments)


def created(agent_id: str, cwd: Path, preset: str = "sandboxed", **more: Any) -> PoolAgent:
    """An agent of the pool."""
    order = {"preset": preset, "cwd": str(cwd), "write_paths": None, "disabled_tools": (), "runner": "rehearsal"}
    agent, _ = pool.create(OPERATOR, pool.Order(agent_id, **{**order, "parent_agent_id": None, **more}))
    return agent


def _shown(entry: Entry) -> str:
    calls = (entry.meta or {}).get("tool_calls", [])
    return entry.content + "".join(f"{call['name']}({json.dumps(call['arguments'])})" for call in calls)
