"""What the pool's figures tell Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine
from prometheus_client.registry import Collector

from nexus.control.agents import questions
from nexus.control.models import PoolAgent, TurnStatus
from nexus.control.permissions.prices import Cost
from nexus_site.serving.metrics import Figures, StoreCollector
from tests.control.playing import at_hand, lead, send, settle, take

__all__ = ["at_hand", "lead"]

NOON = datetime(2126, 3, 1, 12, tzinfo=UTC)


def shown(*collectors: Collector) -> dict[tuple[str, str], float]:
    """What /metrics has of the pool, by name and label."""
    samples = [sample for collector in collectors for family in collector.collect() for sample in family.samples]
    return {
        (sample.name, "".join(each for name, each in sample.labels.items() if name != "le")): sample.value
        for sample in samples
        if "pool" in sample.name or "queued_turn" in sample.name
    }


def worked(clock: time_machine.Traveller) -> None:
    """A turn waits five seconds, takes a minute and uses tokens; one fails; one waits, as a question does."""
    send("lead")
    clock.shift(5)
    turn = take()
    questions.ask(agent_id="lead", kind="question", title="Which?", detail="", subject="", client_id=None)
    clock.shift(60)
    settle(turn, input_tokens=1_000, output_tokens=30, cost=Cost(1_500, "EUR", "its agent"))
    send("lead", "more")
    settle(take(), TurnStatus.FAILED, why="a test")
    send("lead", "later")
    clock.shift(7)


@pytest.fixture
def clock() -> Any:
    with time_machine.travel(NOON, tick=False) as clock:
        yield clock


def test_prometheus_is_told_what_is_now_and_what_has_been(clock: time_machine.Traveller, lead: PoolAgent) -> None:
    ours = (StoreCollector(), Figures())
    shown(*ours)  # from here on it counts
    worked(clock)
    found = shown(*ours)
    assert found[("nexus_pool_agents", "free")] == 1 and found[("nexus_pool_agents", "held")] == 0
    assert found[("nexus_pool_turns", "queued")] == 1 and found[("nexus_pool_turns", "running")] == 0
    assert found[("nexus_oldest_queued_turn_seconds", "")] == 7
    assert found[("nexus_pool_questions", "")] == 0
    waits, turns = "nexus_pool_turn_wait_seconds", "nexus_pool_turn_seconds"
    assert (found[(f"{waits}_count", "sent")], found[(f"{waits}_sum", "sent")]) == (2, 5)
    assert (found[(f"{turns}_sum", "done")], found[(f"{turns}_sum", "failed")]) == (60, 0)
    assert found[("nexus_pool_turn_tokens_sum", "input")] == 1_000
    assert found[("nexus_pool_turn_tokens_sum", "output")] == 30
    assert found[("nexus_pool_turn_cost_count", "EUR")] == 1, "the other's is unknown"
    assert found[("nexus_pool_turn_cost_sum", "EUR")] == 0.0015
    assert found[("nexus_pool_question_seconds_sum", "withdrawn")] == 60, "its turn ended"
    assert shown(*ours) == found, "each thing is counted once"


def test_a_hub_without_a_pool_tells_nothing_of_one(
    lead: PoolAgent, configure: Callable[..., None], tmp_path: Path
) -> None:
    configure(control=False, home=tmp_path / "home")
    assert not shown(StoreCollector(), Figures())
