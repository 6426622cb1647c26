"""Agents that end by themselves: temporary ones with their server, idle ones after a while."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.db import OperationalError
from django.test import TestCase

from coordination import presence
from coordination.models import Agent, Event
from coordination.presence import Presence
from coordination.services import agents, sessions, workspaces
from nexus.control import selectors
from nexus.control.agents import pool, questions, transcript, turns
from nexus.control.agents.turns import Closing, Ended
from nexus.control.models import Entry, PoolAgent, Role, TurnStatus
from nexus.core.clock import now
from tests.control.pool import ADMIN, create, send
from tests.store import failing

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def on(configure: Callable[..., None]) -> None:
    configure(control=True)


def living() -> set[str]:
    return set(PoolAgent.objects.living().values_list("agent_id", flat=True))


def test_temporary_agents_end_that_were_made_before() -> None:
    create(".old")
    create("stays")
    moment = now() + timedelta(seconds=1)
    with time_machine.travel(moment + timedelta(seconds=1)):
        create(".new")
        pool.end_temporary(moment)
    assert living() == {".new", "stays"}


@pytest.mark.parametrize("status", ["failed", "interrupted"])
def test_the_log_says_why_a_turn_failed(status: TurnStatus, caplog: pytest.LogCaptureFixture) -> None:
    create("ann")
    turn = turns.claim(send("ann").pk)
    assert turn
    with TestCase.captureOnCommitCallbacks(execute=True):
        turns.settle_turn(turn, Ended(TurnStatus(status), why="the model is away"))
    assert f"A turn of 'ann' {status}: the model is away." in caplog.text


def test_one_that_ended_is_offline_at_once_whatever_its_turn_does_until_it_is_over() -> None:
    def is_there(name: str) -> tuple[Presence, int]:
        state = presence.state_of(Agent.objects.get(pk=name), now())
        return state.presence, state.sessions

    create("ann", cwd="/")
    turn = turns.claim(send("ann").pk)
    assert turn
    place = workspaces.resolve(project_root="/", display_name=None)
    sessions.open_session(agent_id="ann", workspace_id=place.workspace_id, metadata=None)
    assert is_there("ann") == (Presence.PRESENT, 1)
    pool.destroy(ADMIN, "ann")
    assert is_there("ann") == (Presence.OFFLINE, 0)
    agents.touch("ann", now())
    turns.settle_turn(turn, Ended(TurnStatus.CANCELLED))
    assert is_there("ann") == (Presence.OFFLINE, 0)


def test_a_turn_of_one_that_ended_takes_nothing_from_the_next_of_its_name() -> None:
    create("ann")
    turn = turns.claim(send("ann").pk)
    assert turn
    pool.destroy(ADMIN, "ann")
    create("ann")
    turns.settle_turn(turn, Ended(TurnStatus.CANCELLED))
    assert presence.state_of(Agent.objects.get(pk="ann"), now()).presence is Presence.PRESENT


def test_its_messages_are_counted_as_they_are_said_and_folded() -> None:
    agent = create("ann")
    for number in range(4):
        turn = turns.claim(send("ann", f"question {number} " * 300).pk)
        assert turn
        transcript.append(turn.agent, turn, Role.ASSISTANT, "an answer " * 300, moment=now())
        turns.settle_turn(turn, Ended(TurnStatus.DONE, "done"))

    def counted() -> int:
        [row] = selectors.agents()
        assert row["message_count"] == Entry.objects.in_context().filter(agent=agent).count()
        return row["message_count"]

    assert counted() == 8
    assert transcript.compact(agent, "ops", 100_000)
    assert counted() == 5, "the summary, and two turns"
    positions = list(Entry.objects.filter(agent=agent).order_by("position").values_list("position", flat=True))
    assert positions == list(range(9))


def test_an_agent_that_is_compacted_again_and_again_keeps_one_bounded_summary() -> None:
    agent = create("ann")
    summaries = Entry.objects.in_context().filter(agent=agent, role=Role.SYSTEM)
    for number in range(40):
        for answer in ("an answer", "a second one"):
            turn = turns.claim(send("ann", f"question {number} " + "é" * 500).pk)
            assert turn
            transcript.append(turn.agent, turn, Role.ASSISTANT, f"{answer} " * 300, moment=now())
            turns.settle_turn(turn, Ended(TurnStatus.DONE, "done"))
        transcript.compact(agent, "ops", 8_000)
    summary = summaries.get()
    assert 1_500 < summary.tokens < 2_100, "a quarter of its context"
    asked = [int(number) for number in re.findall(r"user: question (\d+)", summary.content)]
    assert asked == sorted(asked) and asked[-1] == 38, "the newest of what it folded, in the order in which it was said"


def test_a_very_large_context_is_folded_in_parts_that_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "AT_ONCE", 100_000)
    agent = create("ann")
    said = [
        Entry(
            agent=agent,
            position=position,
            role=Role.ASSISTANT,
            content=f"answer {position} " + "word " * 100,
            tokens=150,
            created_at=now(),
        )
        for position in range(2_000)
    ]
    Entry.objects.bulk_create(said)
    PoolAgent.objects.update(entries_made=len(said), entries_known=len(said))
    known, parts = len(said), []
    while transcript.compact(agent, "ops", 8_000):
        [row] = selectors.agents()
        parts.append(known - row["message_count"])
        known = row["message_count"]
        assert known == Entry.objects.in_context().filter(agent=agent).count()
    assert parts == [400, 401, 401, 401, 396], "a summary instead of each part, and of the summary before"
    summary = Entry.objects.in_context().get(agent=agent)
    assert summary.tokens < 2_100 and "answer 1999 word" in summary.content


def test_a_claim_takes_what_still_waits_of_an_agent_at_no_other() -> None:
    create("ann")
    first, second = send("ann"), send("ann")
    assert turns.queued_turns() == [(first.pk, first.agent_id, None)]
    assert turns.claim(first.pk)
    assert turns.claim(first.pk) is None, "taken"
    assert turns.claim(second.pk) is None, "its agent is at another"
    assert turns.queued_turns() == [(second.pk, second.agent_id, None)], "behind the other"
    assert turns.settle_turn(first, Ended(TurnStatus.DONE, "one"))
    assert not turns.settle_turn(first, Ended(TurnStatus.FAILED, why="late")), "settled once"
    assert turns.queued_turns() == [(second.pk, second.agent_id, None)]


def test_a_turn_whose_agent_was_ended_is_cancelled_though_an_answer_comes_first() -> None:
    create("ann")
    turn = turns.claim(send("ann").pk)
    assert turn is not None and pool.destroy(ADMIN, "ann")
    assert turns.settle_turn(turn, Ended(TurnStatus.DONE, "one", closing=Closing("one")))
    turn.refresh_from_db()
    assert turn.status == TurnStatus.CANCELLED
    assert list(Entry.objects.order_by("position").values_list("content", flat=True)) == ["go", "one"]


def test_the_entry_that_closes_a_turn_is_stored_with_its_end_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    create("ann")
    turn = turns.claim(send("ann").pk)
    assert turn is not None
    closed = Ended(TurnStatus.DONE, "one", closing=Closing("one", {"by": "a model"}))
    with monkeypatch.context() as patch, pytest.raises(OperationalError):
        patch.setattr(questions, "withdraw_of", failing_at_the_end)
        turns.settle_turn(turn, closed)
    entries = Entry.objects.filter(agent=turn.agent).order_by("position")
    assert list(entries.values_list("content", flat=True)) == ["go"]
    assert turns.settle_turn(turn, closed)
    assert not turns.settle_turn(turn, closed), "it was stored before, though nobody was told"
    said = entries.last()
    assert said is not None and (said.position, said.role, said.content, said.meta) == (
        1,
        Role.ASSISTANT,
        "one",
        {"by": "a model"},
    )
    assert entries.count() == PoolAgent.objects.get().entries_made == 2
    told = Event.objects.filter(type__startswith="turn.").order_by("event_id").values_list("type", flat=True)
    assert list(told) == ["turn.queued", "turn.started", "turn.said", "turn.done"]


def failing_at_the_end(*_: Any) -> None:
    raise failing("full")
