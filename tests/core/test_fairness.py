"""Turns are given in rotation: each caller gets its turn between the calls that one caller sends at once."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.fairness import AT_ONCE, MOST_LAPSED, SHARE, Turn, Turns, away, begin, current


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn lapses where a test says so, and not because the machine is slow."""
    monkeypatch.setattr("nexus.core.fairness.LAPSE_SECONDS", 3600)


async def settle() -> None:
    """Let every task go as far as it comes."""
    for _ in range(5):
        await asyncio.sleep(0)


async def waiting(turns: Turns, caller: str, served: list[str]) -> Turn:
    turn = Turn(turns, caller)
    await turn.acquire()
    served.append(caller)
    return turn


async def test_a_caller_is_behind_one_call_of_each_other_and_not_behind_all() -> None:
    turns, served = Turns(), list[str]()
    holding = [await waiting(turns, f"busy {number}", []) for number in range(AT_ONCE)]
    flood = [asyncio.ensure_future(waiting(turns, "flood", served)) for _ in range(2_000)]
    await settle()
    other = asyncio.ensure_future(waiting(turns, "other", served))
    await settle()
    for turn in holding[:2]:
        turn.release()
        await settle()
    assert served == ["flood", "other"]
    for task in (*flood, other):
        task.cancel()
    await asyncio.gather(*flood, other, return_exceptions=True)


async def test_calls_that_wait_for_something_else_keep_no_other_call_of_their_caller_waiting() -> None:
    turns = Turns()
    slow = [Turn(turns, "one") for _ in range(SHARE)]
    for turn in slow:
        await turn.acquire()
        turns.lapse(turn)
    assert (await waiting(turns, "one", [])).held
    more = [Turn(turns, "one") for _ in range(MOST_LAPSED + SHARE - len(slow) - 1)]
    for turn in more:
        await turn.acquire()
        turns.lapse(turn)
    last = asyncio.ensure_future(waiting(turns, "one", []))
    await settle()
    assert not last.done(), "and yet they are bounded"
    slow[0].release()
    more[-1].release()
    assert (await last).held


async def test_a_call_that_is_parked_lets_others_be_served() -> None:
    turns = Turns()
    woken = asyncio.Event()

    async def park() -> bool:
        turn = Turn(turns, "one")
        await turn.acquire()
        begin(turn)
        async with away():
            await woken.wait()
        held = current() is turn
        turn.release()
        return held

    parked = [asyncio.ensure_future(park()) for _ in range(10 * SHARE)]
    await settle()
    assert (await waiting(turns, "one", [])).held
    woken.set()
    assert await asyncio.gather(*parked) == [True] * 10 * SHARE, "and each has its turn again behind its wait"


async def test_a_call_that_was_parked_leaves_no_garbage() -> None:
    turns = Turns()

    async def park() -> weakref.ref[Turn]:
        turn = Turn(turns, "one")
        await turn.acquire()
        begin(turn)
        async with away():
            await asyncio.sleep(0)
        turn.release()
        return weakref.ref(turn)

    gc.disable()
    try:
        gone = await asyncio.create_task(park())
        await settle()
        assert gone() is None
    finally:
        gc.enable()


STEP = st.tuples(st.sampled_from(("enter", "leave", "cancel", "lapse")), st.sampled_from("abcdef"), st.booleans())
STEPS = st.lists(STEP, max_size=200)


@given(STEPS)
def test_no_turn_is_lost_or_given_twice(steps: list[tuple[str, str, bool]]) -> None:
    """Also where a call is cancelled, or ends, before the tasks of the step before have run."""

    async def play() -> None:
        turns = Turns()
        tasks: list[tuple[str, asyncio.Task[Turn]]] = []
        for step, caller, is_settled in steps:
            own = [task for name, task in tasks if name == caller]
            held = [task.result() for task in own if task.done() and not task.cancelled() and task.result().held]
            if step == "enter":
                tasks.append((caller, asyncio.ensure_future(waiting(turns, caller, []))))
            elif step == "leave" and held:
                held[0].release()
            elif step == "lapse" and held and not held[0].lapsed:
                turns.lapse(held[0])
            elif step == "cancel" and own:
                own[-1].cancel()
            if not is_settled:
                continue
            await settle()
            served = [task.result() for _, task in tasks if task.done() and not task.cancelled()]
            placed = Counter(turn.caller for turn in served if turn.held and not turn.lapsed)
            assert placed.total() <= AT_ONCE and all(count <= SHARE for count in placed.values())
            asking = {name for name, task in tasks if not task.done()}
            assert placed.total() == AT_ONCE or all(placed[name] == SHARE for name in asking), "nobody waits in vain"
        await settle()
        while pending := [task for _, task in tasks if not task.done()]:
            for _, task in tasks:
                if task.done() and not task.cancelled():
                    task.result().release()
            await settle()
            assert len([task for task in pending if not task.done()]) < len(pending)

    asyncio.run(play())
