"""Budgets of tokens, money and turns: what they count, whom they stop, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import time_machine
from django.test import Client as Browser

from coordination.models import Event
from inbox.monitoring import Picture
from nexus.control.agents import turns, wake_kinds
from nexus.control.attention import KINDS
from nexus.control.faults import Fault, FaultKind
from nexus.control.metrics import collect
from nexus.control.models import Budget, PoolAgent, Turn, TurnStatus
from nexus.control.permissions.prices import Cost
from nexus.core.clock import now
from tests.conftest import at_once
from tests.control.playing import at_hand, command, lead, pool, refused, send, settle, take, writer
from tests.pages import act, shown

__all__ = ["at_hand", "lead", "writer"]


def budget(measure: str = "turns", limit: float = 1, scope: str = "pool", **more: Any) -> str:
    """Set a budget; its id."""
    return str(pool("pool_set_budget", scope=scope, measure=measure, limit=limit, **more)["budget_id"])


def begins(agent_id: str) -> bool:
    """Whether a run of an agent begins; it ends at once."""
    send(agent_id)
    waiting = Turn.objects.queued().get(agent__agent_id=agent_id)
    if (turn := turns.claim(waiting.pk)) is not None:
        settle(turn)
    return turn is not None


def spend(agent_id: str = "lead", **how: Any) -> None:
    """Take a run to its end."""
    send(agent_id)
    settle(take(), **how)


def spent(budget_id: str) -> tuple[float, int]:
    """What is spent of a budget, and how many runs did not tell."""
    row = next(row for row in pool("pool_list_budgets")["budgets"] if row["budget_id"] == budget_id)
    return row["spent"], row["unknown_runs"]


def told() -> list[str]:
    """The budgets that need a person."""
    kind = next(kind for kind in KINDS if kind.name == "budgets")
    return [need.title for need in kind.find(Picture(now()), 10).needs]


def test_a_spent_budget_lets_no_run_begin_and_says_so(lead: PoolAgent) -> None:
    budget_id = budget(limit=1)
    send("lead", "first")
    first = take()
    send("lead", "second")
    settle(first)
    second, third = Turn.objects.queued().get(), send("lead", "third")
    assert turns.claim(second.pk) is None
    for turn in Turn.objects.exclude(pk=first.pk):
        row = pool("pool_get_run", run_id=turn.pk)
        assert (row["outcome"], row["needs_person"]) == ("out_of_budget", True)
        assert (
            row["why"]
            == "out of budget: the limit is 1 turn a day for the pool; raise or remove the budget, then retry"
        )
    assert third in {turn.request_id for turn in Turn.objects.with_outcome("out_of_budget")}
    budget(limit=2)
    again = pool("pool_retry_run", run_id=second.pk)
    assert take().pk == again["run_id"] and spent(budget_id) == (2, 0)


def test_a_run_that_has_begun_may_end(lead: PoolAgent) -> None:
    budget("tokens", 100)
    spend(input_tokens=90, output_tokens=900)
    assert Turn.objects.get().status == TurnStatus.DONE and not begins("lead")


def test_operators_are_told_when_it_is_nearly_spent_and_when_it_is(lead: PoolAgent) -> None:
    budget("tokens", 100)
    spend(input_tokens=70, output_tokens=9)
    assert told() == []
    spend(input_tokens=1)
    assert told() == ["80 % of a budget is spent: 100 tokens a day for the pool"]
    spend(input_tokens=1)
    spend(input_tokens=19)
    assert told() == ["A budget is spent: 100 tokens a day for the pool"]
    events = Event.objects.filter(type__startswith="pool.budget").order_by("event_id")
    assert [(event.type, event.payload["percent"]) for event in events] == [
        ("pool.budget_nearly_spent", 80),
        ("pool.budget_spent", 100),
    ]
    budget("tokens", 1_000)
    assert told() == []


def test_it_counts_an_agent_those_below_it_a_project_or_all(
    lead: PoolAgent, writer: PoolAgent, at_hand: Path, tmp_path: Path
) -> None:
    (tmp_path / "parser2").mkdir()
    pool("pool_create_agent", agent_id="other", cwd=str(tmp_path / "parser2"))
    ids = {
        "agent": budget(limit=9, scope="agent", name="lead"),
        "subtree": budget(limit=9, scope="subtree", name="lead"),
        "project": budget(limit=9, scope="project", name=f"{at_hand}/src/.."),
        "pool": budget(limit=9),
    }
    for agent_id in ("lead", "writer", "other"):
        assert begins(agent_id)
    assert {scope: spent(budget_id)[0] for scope, budget_id in ids.items()} == {
        "agent": 1, "subtree": 2, "project": 2, "pool": 3,
    }  # fmt: skip
    budget(limit=2, scope="subtree", name="lead")
    assert (begins("writer"), begins("lead"), begins("other")) == (False, False, True)


def test_money_that_nobody_told_is_unknown(lead: PoolAgent) -> None:
    budget_id = budget("money", 0.5, currency="EUR")
    spend(cost=Cost(400_000, "EUR", "its agent"))
    spend(cost=Cost(400_000, "USD", "its agent"))
    spend(input_tokens=5)
    spend(cost=Cost(0, "EUR", "its agent"))
    assert spent(budget_id) == (0.4, 2) and told() == ["80 % of a budget is spent: 0.50 EUR a day for the pool"]
    tokens = budget("tokens", 5)
    spend()
    assert spent(tokens) == (0, 1)
    assert "remove it first" in refused("pool_set_budget", scope="pool", measure="money", limit=1)["message"]


def test_a_day_ends_and_a_total_does_not(lead: PoolAgent) -> None:
    with time_machine.travel("2026-11-25T23:59:00Z", tick=False) as clock:
        day, total = budget(limit=1), budget(limit=2, period="total")
        assert begins("lead") and not begins("lead")
        clock.move_to("2026-11-26T00:00:00Z")
        assert (spent(day), spent(total)) == ((0, 0), (1, 0))
        assert begins("lead")
        clock.move_to("2026-11-28T00:00:00Z")
        assert spent(day) == (0, 0) and not begins("lead")


def test_two_runs_that_begin_at_once_do_not_both_take_the_last_turn(
    committed: None, lead: PoolAgent, writer: PoolAgent
) -> None:
    budget_id = budget(limit=1)
    for agent_id in ("lead", "writer"):
        send(agent_id)
    waiting = list(Turn.objects.queued().values_list("pk", flat=True))
    begun = at_once([partial(turns.claim, turn_id) for turn_id in waiting])
    assert [turn for turn in begun if turn is None] == [None] and len(begun) == 2 and spent(budget_id) == (1, 0)


def test_operators_who_set_it_at_once_set_one(committed: None, lead: PoolAgent) -> None:
    at_once([partial(budget, limit=limit) for limit in (1, 2, 3, 4)])
    assert Budget.objects.count() == 1


def test_a_spent_budget_wakes_nobody(lead: PoolAgent) -> None:
    assert wake_kinds.limit_reached(lead, 1, now()) is None
    budget(limit=1, scope="agent", name="lead")
    assert begins("lead")
    assert wake_kinds.limit_reached(lead, 1, now()) == "budget"
    lead.held_why = "budget"
    assert wake_kinds.why_held(lead) == "a budget is spent: 1 turn a day for lead"


def test_what_is_no_budget_is_refused(at_hand: Path) -> None:
    wrongs: list[dict[str, Any]] = [
        {"scope": "agent"},
        {"scope": "agent", "name": "a/b"},
        {"scope": "pool", "name": "lead"},
        {"scope": "project", "name": "relative"},
        {"scope": "project", "name": "/\0"},
        {"limit": 0},
        {"limit": -1},
        {"limit": 1.5},
        {"limit": 1e300},
        {"measure": "money", "limit": 1e-9},
        {"measure": "money", "currency": "dollars"},
        {"period": "year"},
    ]
    for wrong in wrongs:
        given = {"scope": "pool", "measure": "turns", "limit": 1, **wrong}
        assert refused("pool_set_budget", **given)["code"] == "VALIDATION_ERROR"


def test_the_command_sets_lists_and_removes(committed: None, configure: Callable[..., None]) -> None:
    configure(control=True)

    command("budgets", "set", "subtree", "money", "2.5", "--name", "lead", "--period", "total")
    listed = command("budgets")
    assert "2.5 USD" in listed
    command("budgets", "remove", next(word for word in listed.split() if word.startswith("bud_")))
    assert not Budget.objects.exists()
    assert refused("pool_remove_budget", budget_id="bud_none")["code"] == "NOT_FOUND"


BUDGETS = "/admin/control/budget/"


def test_the_page_sets_shows_and_removes(lead: PoolAgent, browser: Browser) -> None:
    given = {"scope": "agent", "name": "lead", "limit": "2", "measure": "turns", "period": "day", "currency": "USD"}
    assert browser.post(f"{BUDGETS}add/", given)["Location"] == BUDGETS
    assert begins("lead") and begins("lead") and not begins("lead")
    page = shown(browser.get(BUDGETS))
    assert "2 turns a day for lead" in page and "100 %" in page
    run = shown(browser.get(f"/admin/control/turn/{Turn.objects.with_outcome('out_of_budget').get().pk}/change/"))
    assert "out of budget" in run and "the limit is 2 turns a day for lead" in run
    attention = shown(browser.get("/admin/attention/"))
    assert "A budget is spent" in attention and "Budgets that are spent, or nearly" in attention
    act(browser, do=f"pool_remove_budget {Budget.objects.get().pk}")
    assert "2 turns a day" not in shown(browser.get(BUDGETS))
    refusal = shown(browser.post(f"{BUDGETS}add/", {**given, "name": ""}))
    assert "Name the agent." in refusal


def test_prometheus_has_what_is_spent(lead: PoolAgent) -> None:
    budget("tokens", 200)
    spend(input_tokens=40, output_tokens=10)
    found = {(family.name, *sample.labels.values()): sample.value for family in collect() for sample in family.samples}
    assert found["nexus_pool_budget_spent_ratio", "pool", "", "tokens", "day"] == 0.25


def test_the_page_shows_who_spent_most(lead: PoolAgent, writer: PoolAgent, browser: Browser) -> None:
    with time_machine.travel(now(), tick=False) as clock:
        spend("writer", input_tokens=2_000, cost=Cost(10_000, "USD", "its agent"))
        spend("writer", input_tokens=500, cost=Cost(20_000, "USD", "its agent"))
        spend("writer")
        spend("lead", input_tokens=40)
        page = " ".join(shown(browser.get("/admin/spending/")).split())
        assert (
            "3 runs · 2,500 tokens · 0.03 USD; 1 of unknown cost" in page and "1 run · 40 tokens · cost unknown" in page
        )
        assert page.index("2,500 tokens") < page.index("40 tokens")
        clock.shift(2 * 86_400)
        assert "No run has ended" in shown(browser.get("/admin/spending/"))
        assert "2,500 tokens" in shown(browser.get("/admin/spending/?days=7"))
        assert "No run has ended" in shown(browser.get("/admin/spending/?days=nonsense"))


def test_a_run_that_begins_again_takes_no_second_turn(lead: PoolAgent) -> None:
    budget_id, tokens = budget(limit=1), budget("tokens", 100)
    send("lead")
    turn = take()
    settle(turn, TurnStatus.FAILED, why="overloaded", input_tokens=60, fault=Fault(FaultKind.OVERLOADED))
    pool("pool_reset_outage", runner="rehearsal")  # its provider answers again
    again = turns.claim(turn.pk)
    assert again is not None and (spent(budget_id), spent(tokens)) == ((1, 0), (0, 0))
    settle(again, input_tokens=30)
    assert (spent(budget_id), spent(tokens)) == ((1, 0), (90, 0))
    assert not begins("lead")
