"""The context of a pool agent stays bounded, although its runner does not compact it and nobody asks for it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from coordination.models import Event
from nexus.control import maintenance
from nexus.control.models import HUB, Entry, PoolAgent, Role
from nexus.control.worker.scheduling import Worker
from nexus.core.waiting import READERS, in_thread, waiter
from nexus.maintenance.retention import prune
from tests.control.playing import at_hand, pool, say, send, settle, take
from tests.core.waiting import LONG

__all__ = ["at_hand"]
SMALL = '[runners.{}]\nkind = "rehearsal"\ncontext_tokens = {}\nreply_tokens = 1\n'


@pytest.fixture
def agents(committed: None, at_hand: Path) -> dict[str, PoolAgent]:
    """Two that were told the same, which is too much for `small` alone."""
    tables = [SMALL.format("small", 10_000), SMALL.format("large", 100_000)]
    (at_hand.parent / "home" / "runners.toml").write_text("".join(tables))
    for name in ("small", "large"):
        pool("pool_create_agent", agent_id=name, cwd=str(at_hand), model=name)
    for _ in range(10):
        talk()
    return {agent.agent_id: agent for agent in PoolAgent.objects.all()}


def talk() -> None:
    for name in ("small", "large"):
        send(name, "work")
        turn = take()
        say(turn, Role.ASSISTANT, "done " * 1_000)
        settle(turn)


def known(agent_id: str) -> int:
    return int(pool("pool_get_tokens", agent_id=agent_id)["messages"])


def test_what_nearly_fills_a_context_is_folded_and_pruned_in_its_time(agents: dict[str, PoolAgent]) -> None:
    for _ in range(3):
        for _ in range(10):
            talk()
        before = known("large")
        maintenance.compact_full(HUB)
        assert known("small") < 5_000 and known("large") == before
    assert Entry.objects.filter(agent=agents["small"]).count() > Entry.objects.filter(agent=agents["large"]).count()
    with time_machine.travel(datetime.now(UTC) + timedelta(days=100)):
        prune()
    assert Entry.objects.filter(agent=agents["small"]).count() == 5, "a summary, and two turns"


async def test_the_worker_sees_to_it(agents: dict[str, PoolAgent], worker: Worker) -> None:
    async with waiter().park(lambda event: event.type == "pool.compacted") as parked, asyncio.timeout(LONG):
        while (folded := await in_thread(READERS, told)) == []:
            await parked.wait(LONG)
    assert folded == [(None, "small")], "nobody asked for it"


def told() -> list[tuple[str | None, str]]:
    return [(event.actor_agent_id, event.payload["agent_id"]) for event in Event.objects.filter(type="pool.compacted")]
