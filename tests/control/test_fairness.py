"""Whose turn is next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.control.worker import scheduling
from nexus.control.worker.scheduling import Fairness, QueuedTurn


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
