"""Runs that do not go on: silent, in a loop, or with a question that nobody answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client as Browser

from coordination.models import Event
from inbox.monitoring import Picture
from nexus.control.agents import turns
from nexus.control.agents.questions import AnswerKind, answer_question
from nexus.control.agents.turns import Ended
from nexus.control.attention import KINDS
from nexus.control.models import PoolAgent, Question, Role, Turn, TurnStatus
from nexus.control.runners.base import Scene
from nexus.control.runners_file import FILE
from nexus.control.worker.execution import LoopDetector
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from nexus.core.waiting import READERS, WRITERS, in_thread, waiter
from tests.control.playing import at_hand, lead, pool, refused, send, settle, take
from tests.control.pool import DONE, HERE, Take, acreate, asend, ended
from tests.pages import act, shown

__all__ = ["at_hand", "lead"]
Plays = Callable[[Take], None]


@pytest.fixture
def quick(committed: None, tmp_path: Path, configure: Callable[..., None]) -> Iterator[None]:
    """A runner whose runs count as stuck after a second, or after three calls."""
    configure(home=tmp_path / "home")
    (tmp_path / "home").mkdir()
    limits = "stuck_seconds = 1\nstuck_calls = 3\n"
    (tmp_path / "home" / FILE).write_text(f'[runners.rehearsal]\nkind = "rehearsal"\n{limits}')
    yield


def stuck() -> list[tuple[str, str]]:
    """The stuck runs of *Needs a person*: run and reason."""
    kind = next(kind for kind in KINDS if kind.name == "stuck-runs")
    return [(need.subject, need.detail) for need in kind.find(Picture(now()), 10).needs]


async def told(*types: str) -> Event:
    """The next event of these types."""
    async with waiter().park(lambda event: event.type in types) as parked, asyncio.timeout(180):
        while True:
            found = await in_thread(READERS, lambda: Event.objects.filter(type__in=types).last())
            if found is not None:
                return found
            await parked.wait(5)


async def test_a_silent_run_is_stuck_until_something_comes(quick: None, worker: Worker, plays: Plays) -> None:
    go_on = asyncio.Event()
    over = asyncio.Event()

    async def silent(runner: Any, scene: Scene) -> Ended:
        await go_on.wait()
        scene.draft.add("I am here.")
        await over.wait()
        return DONE

    plays(silent)
    await acreate("ann")
    turn_id = await asend("ann")
    event = await told("turn.stuck")
    assert event.payload["why"] == "no update for 1 second" and event.payload["turn_id"] == turn_id
    assert await in_thread(READERS, stuck) == [(turn_id, "no update for 1 second")]
    row = await in_thread(READERS, lambda: pool("pool_list_runs", outcome="stuck")["runs"][0])
    assert (row["run_id"], row["outcome"], row["needs_person"]) == (turn_id, "stuck", True)
    go_on.set()
    await told("turn.goes_on")
    assert await in_thread(READERS, stuck) == []
    over.set()
    turn = await ended(turn_id)
    assert (turn.status, turn.cause, turn.why, turn.needs_person_since) == ("done", None, None, None)


async def test_a_run_whose_question_nobody_answers_is_stuck(quick: None, worker: Worker, plays: Plays) -> None:
    async def asks(runner: Any, scene: Scene) -> Ended:
        decision = await scene.ask("question", "Which branch?", "", subject="")
        return Ended(TurnStatus.DONE, decision.words)

    plays(asks)
    await acreate("ann")
    turn_id = await asend("ann")
    event = await told("turn.stuck")
    assert event.payload["why"] == "nobody has answered its question, 'Which branch?', for 1 second"

    def say() -> None:
        question = Question.objects.get()
        answer_question(question_id=question.pk, verdict=AnswerKind.WORDS, words="main", operator="ops")

    await in_thread(WRITERS, say)
    turn = await ended(turn_id)
    assert (turn.answer, turn.needs_person_since) == ("main", None)


async def test_a_run_that_makes_the_same_call_with_the_same_result_is_in_a_loop(
    quick: None, worker: Worker, plays: Plays
) -> None:
    over = asyncio.Event()

    async def loops(runner: Any, scene: Scene) -> Ended:
        for number in range(5):
            call = {"id": str(number), "name": "grep", "arguments": {"pattern": "x"}}
            await scene.say(Role.ASSISTANT, "", meta={"tool_calls": [call]})
            await scene.say(Role.TOOL, "nothing", tool_call_id=str(number))
        await over.wait()
        return DONE

    plays(loops)
    await acreate("ann")
    turn_id = await asend("ann")
    event = await told("turn.stuck")
    assert event.payload["why"] == "it made the same call 3 times, with the same result: grep"
    await in_thread(WRITERS, lambda: pool("pool_cancel_run", run_id=turn_id))
    assert (await ended(turn_id)).status == TurnStatus.CANCELLED
    events = await in_thread(READERS, lambda: Event.objects.filter(type="turn.stuck").count())
    assert events == 1


def made(detector: LoopDetector, *calls: tuple[Any, str]) -> list[str]:
    """What is found, call by call: arguments and result of each."""
    found = []
    for number, (arguments, result) in enumerate(calls):
        call = {"id": str(number), "name": "run", "arguments": arguments}
        detector.look(Role.ASSISTANT, "", None, {"tool_calls": [call]})
        found.append(detector.look(Role.TOOL, result, str(number), None))
    return found


def test_a_loop_is_the_same_call_and_result_among_the_last_ones() -> None:
    a, b, other = ({"x": 1, "y": 2}, "r"), ({"z": 1}, "r"), ({"x": 1, "y": 2}, "another")
    same = ({"y": 2, "x": 1}, "r")
    assert made(LoopDetector(3), a, same, a, a) == ["", "", "run", ""], "once"
    assert made(LoopDetector(3), a, b, a, b, a, b) == ["", "", "", "", "run", "run"], "in turns, too"
    assert made(LoopDetector(3), a, other, a, other) == [""] * 4
    far = [({"n": number}, "r") for number in range(6)]
    assert made(LoopDetector(3), a, a, *far, a) == [""] * 9, "long ago"
    odd: list[Any] = [None, [], "x", {"tool_calls": [None, {"id": None}]}, {"tool_calls": "x"}]
    detector = LoopDetector(2)
    assert [detector.look(Role.ASSISTANT, "", None, meta) for meta in odd] == [""] * 5
    assert detector.look(Role.TOOL, "r", "unknown", None) == ""


def stick(why: str = "no update for 600 seconds") -> Turn:
    """A run that is stuck."""
    send("lead", "Read it.")
    turn = take()
    turns.report_stuck(turn, why)
    return Turn.objects.get(pk=turn.pk)


def test_a_stuck_run_is_cancelled_retried_or_dismissed_where_it_is_shown(lead: PoolAgent, browser: Browser) -> None:
    first = stick()
    page = shown(browser.get("/admin/attention/"))
    assert "A run of lead is stuck" in page and "no update for 600 seconds" in page
    assert ">stuck<" in shown(browser.get("/admin/control/poolagent/"))
    for action in ("pool_cancel_run", "pool_dismiss_run"):
        assert f"{action} {first.pk}" in browser.get(f"/admin/control/turn/{first.pk}/change/").content.decode()
    act(browser, do=f"pool_dismiss_run {first.pk}")
    first.refresh_from_db()
    assert (first.outcome, first.why, stuck()) == ("running", None, [])
    turns.report_stuck(first, "again")
    act(browser, do=f"pool_retry_run {first.pk}")
    first.refresh_from_db()
    again = Turn.objects.get(retry_of=first.pk)
    assert first.cancel_requested_at is not None and again.content == "Read it." and stuck() == []
    settle(first, TurnStatus.CANCELLED)
    settle(take(), TurnStatus.DONE)
    third = stick()
    act(browser, do=f"pool_cancel_run {third.pk}")
    third.refresh_from_db()
    assert third.cancel_requested_at is not None and stuck() == []
    turns.report_stuck(third, "too late")
    assert stuck() == [], "its end was asked for"
    settle(third, TurnStatus.CANCELLED)
    assert refused("pool_cancel_run", run_id=third.pk)["code"] == "INVALID_TRANSITION"


def test_the_first_reason_stays_and_what_was_said_too_late_changes_nothing(lead: PoolAgent) -> None:
    turn = stick("it made the same call 5 times, with the same result: grep")
    turns.report_stuck(turn, "no update for 600 seconds")
    turns.goes_on(turn, "no update for 600 seconds")
    assert [why for _, why in stuck()] == ["it made the same call 5 times, with the same result: grep"]
    settle(turn, TurnStatus.FAILED, why="it crashed")
    turns.report_stuck(turn, "no update for 600 seconds")
    turn.refresh_from_db()
    assert (turn.outcome, turn.why, turn.cause, stuck()) == ("failed", "it crashed", None, [])
    assert refused("pool_cancel_run", run_id="turn_none")["code"] == "NOT_FOUND"


def test_a_run_that_is_stuck_when_its_worker_is_killed_is_lost(lead: PoolAgent) -> None:
    turn = stick()
    turns.interrupt("the worker that took it ended", HERE)
    turn.refresh_from_db()
    assert (turn.outcome, turn.cause, stuck()) == ("lost", None, []) and turn.needs_person_since is not None
