"""A pool for tests: a worker in this process, and runners that do what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from nexus.control.agents import pool, turns
from nexus.control.agents.turns import Ended
from nexus.control.models import HUB, Entry, Incarnation, PoolAgent, Turn, TurnStatus
from nexus.control.permissions.members import Actor
from nexus.control.runners.base import Scene
from nexus.control.worker.scheduling import Worker
from nexus.core.waiting import READERS, WRITERS, in_thread, waiter

ADMIN = Actor("ops")
HERE = Incarnation(HUB, 2**31)  # any worker of the hub
Take = Callable[[Any, Scene], Awaitable[Ended]]
DONE = Ended(TurnStatus.DONE, "done")


async def done(runner: Any, scene: Scene) -> Ended:
    """Take a turn that ends well at once."""
    return DONE


def stalls(begun: asyncio.Event) -> Take:
    """Take turns that tell when they begin, and go on until they are cancelled."""

    async def take(runner: Any, scene: Scene) -> Ended:
        begun.set()
        return await asyncio.Future[Ended]()

    return take


def order(agent_id: str, **more: Any) -> pool.Order:
    """A new agent, as it is asked for."""
    given = {"preset": "trusted", "cwd": None, "write_paths": None, "disabled_tools": (), "parent_agent_id": None}
    return pool.Order(**{**given, "agent_id": agent_id, "runner": "rehearsal", **more})


def create(agent_id: str, **more: Any) -> PoolAgent:
    """An agent of the pool."""
    return pool.create(ADMIN, order(agent_id, **more))[0]


def send(agent_id: str, content: str = "go", *, actor: Actor = ADMIN, request_id: str | None = None) -> Turn:
    """A turn that waits."""
    return turns.send(actor, agent_id, content=content, request_id=request_id, source="rpc")


@asynccontextmanager
async def at_work(worker: Worker, *, at_once: bool = False) -> AsyncIterator[Worker]:
    """Let a worker work in this process. Its end waits for its turns, unless it is to end at once or the test fails."""
    task = asyncio.create_task(worker.work())
    try:
        yield worker
    except BaseException:
        at_once = True
        raise
    finally:
        worker.stop(at_once=at_once)
        await task


async def acreate(*agent_ids: str) -> None:
    """Agents of the pool, from an event loop."""
    for agent_id in agent_ids:
        await in_thread(WRITERS, lambda agent_id=agent_id: create(agent_id))  # type: ignore[misc]


async def asend(agent_id: str, content: str = "go") -> str:
    """A turn that waits, from an event loop; its id."""
    turn = await in_thread(WRITERS, lambda: send(agent_id, content))
    return turn.pk


async def acancel(turn_id: str) -> None:
    """Ask for a turn's end."""

    def cancel() -> None:
        turn = Turn.objects.select_related("agent").get(pk=turn_id)
        turns.cancel(ADMIN, turn.agent.agent_id, turn.request_id)

    await in_thread(WRITERS, cancel)


async def ended(turn_id: str) -> Turn:
    """The turn, once it has ended."""
    async with waiter().park(lambda event: event.type.startswith("turn.")) as parked, asyncio.timeout(180):
        while True:
            turn = await in_thread(READERS, lambda: Turn.objects.get(pk=turn_id))
            if turn.ended_at is not None:
                return turn
            await parked.wait(5)


async def said(agent_id: str) -> list[str]:
    """What stands in an agent's transcript."""
    entries = Entry.objects.filter(agent__agent_id=agent_id).order_by("position").values_list("content", flat=True)
    return await in_thread(READERS, lambda: list(entries))
