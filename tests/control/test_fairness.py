"""Whose turn is next, and whose share of threads a call counts in."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.toolset import arun
from nexus.control.worker import scheduling
from nexus.control.worker.scheduling import Fairness, QueuedTurn
from nexus.core.operations import outside
from nexus.core.operations.caller import Caller
from nexus.core.waiting import WRITERS, in_thread
from tests.acceptance.hub import START_SECONDS
from tests.control.pool import create


def served(
    remembering: Fairness, queues: dict[tuple[str | None, str], int], turns: int
) -> list[tuple[str | None, str]]:
    """Who is served, one after the other, when so many turns of a family wait for an agent: one is taken at a time."""
    left, order = dict(queues), []
    for _ in range(turns):
        waiting = [
            QueuedTurn(f"turn_{number}", agent, family)
            for number, (family, agent) in enumerate(left)
            if left[family, agent]
        ]
        chosen = remembering.first(waiting, ())
        if chosen is None:
            break
        remembering.serve(chosen)
        left[chosen.family, chosen.agent] -= 1
        order.append((chosen.family, chosen.agent))
    return order


def test_it_starves_nobody_behind_a_family_with_many_agents() -> None:
    queues: dict[tuple[str | None, str], int] = {("lead", f"agent-{number}"): 1 for number in range(100)}
    order = served(Fairness(), {**queues, ("other", "late"): 1}, 2)
    assert ("other", "late") in order


def test_it_prefers_the_family_of_whose_turns_the_fewest_run() -> None:
    waiting = [QueuedTurn("turn_1", "a", "lead"), QueuedTurn("turn_2", "b", "other")]
    chosen = Fairness().first(waiting, ["lead", "lead", "other"])
    assert chosen is not None
    assert chosen.agent == "b"


def test_it_forgets_those_who_were_served_longest_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "MOST", 4)
    remembering = Fairness()
    for agent in "abc":
        remembering.serve(QueuedTurn("turn", agent, f"lead of {agent}"))
    waiting = [
        QueuedTurn("turn_1", "c", "lead of c"),
        QueuedTurn("turn_2", "b", "lead of b"),
        QueuedTurn("turn_3", "a", "new"),
    ]
    order = []
    while waiting and (chosen := remembering.first(waiting, ())):
        waiting.remove(chosen)
        order.append(chosen.agent)
    assert order == ["a", "b", "c"]


def test_nobody_waits_nothing_comes() -> None:
    assert Fairness().first([], ()) is None


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(1, 9), min_size=1))
def test_it_serves_every_agent_once_before_any_twice(queues: dict[str, int]) -> None:
    order = served(Fairness(), {("lead", agent): count for agent, count in queues.items()}, sum(queues.values()))
    assert len(order) == sum(queues.values()), "and all of them in the end"
    assert len(set(order[: len(queues)])) == len(queues)


async def test_directories_that_do_not_answer_hold_up_the_family_that_names_them(
    committed: None, configure: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mounts whose servers are gone. A family has more agents than there are threads."""
    configure(control=True)
    answers, really = threading.Event(), os.path.realpath

    def realpath(path: str, **how: Any) -> str:
        if path.startswith("/hung"):
            answers.wait(START_SECONDS)
        return really(path, **how)

    def begin() -> list[str]:
        create("lead", cwd=str(tmp_path))
        return [create(f"child-{number}", parent_agent_id="lead", preset="worker").agent_id for number in range(9)]

    async def call(agent: str, root: str) -> bool:
        caller = Caller("http", agent_id=agent, connection=f"mcp:{agent}")
        return bool((await arun(caller, "channel_list", {"project_root": root}))["ok"])

    family = ["lead", *await in_thread(WRITERS, begin)]
    monkeypatch.setattr(os.path, "realpath", realpath)
    monkeypatch.setattr(outside, "TIME_LIMIT_SECONDS", 1)
    try:
        named = [(agent, f"/hung/{agent}/{number}") for agent in family for number in range(4)]
        stuck = [asyncio.create_task(call(*each)) for each in named]
        await asyncio.sleep(0.3)
        assert await call("bob", str(tmp_path))
        assert not any(await asyncio.gather(*stuck))
    finally:
        answers.set()
