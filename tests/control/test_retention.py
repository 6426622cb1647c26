"""What is pruned of agents that live: what they know no more, and turns of which nothing is left; never what they know,
nor their last turns."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from nexus.control import metrics
from nexus.control.agents import monitoring, timeline
from nexus.control.maintenance import KEPT_TURNS
from nexus.control.models import Entry, PoolAgent, Question, Role, Turn, Wake
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.core.contributions import SampleWindow
from nexus.maintenance.retention import prune
from tests.control.listening import listening
from tests.control.playing import at_hand, lead, pool, say, send, settle, take
from tests.control.wire import TOKEN

__all__ = ["at_hand", "lead"]

MANY = KEPT_TURNS + 5  # turns
ENTRIES, TURNS = "compacted_pool_entries", "ended_pool_turns"


@pytest.fixture
def old(committed: None, at_hand: Path, monkeypatch: pytest.MonkeyPatch) -> PoolAgent:
    """An agent whose turns are long over, and of all but the last two of which it knows a summary."""
    monkeypatch.setattr(ENDPOINT, "token", TOKEN)
    with time_machine.travel(datetime.now(UTC) - timedelta(days=100)) as clock:
        pool("pool_create_agent", agent_id="lead", preset="trusted", cwd=str(at_hand))
        for number in range(MANY):
            clock.shift(60)
            work(f"work {number}")
        assert pool("pool_compact", agent_id="lead")["compacted"]
    return PoolAgent.objects.get()


def work(content: str) -> Turn:
    send("lead", content)
    turn = take()
    say(turn, Role.ASSISTANT, "done " * 2_000)
    settle(turn)
    return turn


def asked() -> list[str]:
    return list(Turn.objects.order_by("turn_id").values_list("content", flat=True))


def pruned() -> tuple[int, int]:
    """Entries and turns that a pass found and deleted."""
    done = prune()
    assert all(lane.found <= lane.deleted for lane in done.values()), "what goes with a row is counted, too"
    return done[ENTRIES].found, done[TURNS].found


def test_what_it_knows_no_more_goes_and_the_rest_stays_as_it_was(old: PoolAgent) -> None:
    known = pool("pool_get_messages", agent_id="lead")
    context, tokens = (pool(f"pool_get_{what}", agent_id="lead") for what in ("context", "tokens"))
    assert pruned() == (2 * (MANY - 2), 5)
    assert asked() == [f"work {number}" for number in range(5, MANY)]
    assert pool("pool_get_messages", agent_id="lead") == known and known["total"] == 5
    assert pool("pool_get_context", agent_id="lead") == context
    assert pool("pool_get_tokens", agent_id="lead") == tokens
    assert pruned() == (0, 0)
    work("on")
    assert Entry.objects.order_by("-position")[0].position == 2 * MANY + 2, "positions go on"


def test_nothing_goes_before_its_time_and_nothing_that_is_known(lead: PoolAgent) -> None:
    with time_machine.travel(datetime.now(UTC) - timedelta(days=100)) as clock:
        for number in range(MANY):
            clock.shift(60)
            work(f"work {number}")
    assert pruned() == (0, 0), "it was never compacted"
    assert pool("pool_compact", agent_id="lead")["compacted"]
    assert pruned() == (0, 0), "it was compacted just now"


def test_what_tells_of_a_turn_keeps_it(old: PoolAgent) -> None:
    about, woken, by_mail, *_ = Turn.objects.order_by("turn_id")
    moment = datetime.now(UTC)
    Question.objects.create(
        question_id="q", agent_id="lead", pool_agent=old, turn=about, kind="permission", title="Run make?",
        status="allowed", always=True, asked_at=moment, expires_at=moment, ended_at=moment,
    )  # fmt: skip
    Wake.objects.create(turn=woken, kind="handoff", item="h")
    Wake.objects.create(turn=by_mail, kind="mail", item="m")
    assert pruned()[1] == 3
    assert {about.pk, woken.pk} < set(Turn.objects.values_list("pk", flat=True))
    assert not Wake.objects.filter(kind="mail").exists()


def test_a_follower_goes_on_behind_what_was_pruned(old: PoolAgent) -> None:
    prune()
    first = 2 * (MANY - 2)

    async def follow(query: str) -> list[int]:
        async with listening("lead", query) as (listener, _):
            return [(await listener.next("entry"))["data"]["position"] for _ in range(2)]

    for query in ("", f"after={old.pk}:3", f"after={old.pk}:{first}"):
        assert asyncio.run(follow(query)) == [first, first + 1]


def test_pages_figures_and_the_timeline_go_on(old: PoolAgent) -> None:
    prune()
    since, until = datetime.now(UTC) - timedelta(days=101), datetime.now(UTC)
    part = monitoring.part(old, before=2 * (MANY - 2), limit=20)
    assert (part.entries, part.earlier, part.later) == ([], False, True)
    assert monitoring.spent(old).turns == KEPT_TURNS
    assert len(timeline.course(since, until, cell=timedelta(hours=1)).stretches) == KEPT_TURNS
    assert timeline.turn(Turn.objects.order_by("turn_id")[0].pk)[1] is None  # type: ignore[index]
    took = next(figure for figure in metrics.FIGURES if figure.name == "pool_turn_seconds")
    assert len(took.samples(SampleWindow(since, until, 100))) == KEPT_TURNS
