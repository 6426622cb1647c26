"""Each caller has few slots at once, so the many calls of one are no line before the call of another."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.fairness import AT_ONCE, SHARE, CallSlot, CallSlots, away, current, hold


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot lapses where a test says so, and not because the machine is slow."""
    monkeypatch.setattr("nexus.core.fairness.LAPSE_SECONDS", 3600)


async def settle() -> None:
    """Let every task go as far as it comes."""
    for _ in range(5):
        await asyncio.sleep(0)


async def waiting(slots: CallSlots, caller: str, served: list[str]) -> CallSlot:
    slot = CallSlot(slots, caller)
    await slot.acquire()
    served.append(caller)
    return slot


async def test_a_caller_is_behind_few_calls_of_another_and_not_behind_all() -> None:
    slots, served = CallSlots(), list[str]()
    holding = [await waiting(slots, f"busy {number}", []) for number in range(AT_ONCE)]
    flood = [asyncio.ensure_future(waiting(slots, "flood", served)) for _ in range(2_000)]
    await settle()
    other = asyncio.ensure_future(waiting(slots, "other", served))
    await settle()
    for slot in holding[: SHARE + 1]:
        slot.release()
        await settle()
    assert served == [*["flood"] * SHARE, "other"]
    for task in (*flood, other):
        task.cancel()
    await asyncio.gather(*flood, other, return_exceptions=True)


async def test_a_call_that_takes_long_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.core.fairness.LAPSE_SECONDS", 0)
    slots = CallSlots()
    for _ in range(3 * AT_ONCE):
        await waiting(slots, "one", [])  # and none of them ends


async def test_a_call_that_is_parked_lets_others_be_served() -> None:
    slots = CallSlots()
    woken = asyncio.Event()

    async def park() -> bool:
        slot = CallSlot(slots, "one")
        await slot.acquire()
        hold(slot)
        async with away():
            await woken.wait()
        held = current() is slot
        slot.release()
        return held

    parked = [asyncio.ensure_future(park()) for _ in range(10 * SHARE)]
    await settle()
    assert (await waiting(slots, "one", [])).held
    woken.set()
    assert await asyncio.gather(*parked) == [True] * 10 * SHARE, "and each has a slot again behind its wait"


async def test_a_call_that_was_parked_leaves_no_garbage() -> None:
    slots = CallSlots()

    async def park() -> weakref.ref[CallSlot]:
        slot = CallSlot(slots, "one")
        await slot.acquire()
        hold(slot)
        async with away():
            await asyncio.sleep(0)
        slot.release()
        return weakref.ref(slot)

    gc.disable()
    try:
        gone = await asyncio.create_task(park())
        await settle()
        assert gone() is None
    finally:
        gc.enable()


STEP = st.tuples(st.sampled_from(("enter", "leave", "cancel")), st.sampled_from("abcdef"), st.booleans())
STEPS = st.lists(STEP, max_size=200)


@given(STEPS)
def test_no_slot_is_lost_or_given_twice(steps: list[tuple[str, str, bool]]) -> None:
    """Also where a call is cancelled, or ends, before the tasks of the step before have run."""

    async def play() -> None:
        slots = CallSlots()
        tasks: list[tuple[str, asyncio.Task[CallSlot]]] = []
        for step, caller, is_settled in steps:
            own = [task for name, task in tasks if name == caller]
            held = [task.result() for task in own if task.done() and not task.cancelled() and task.result().held]
            if step == "enter":
                tasks.append((caller, asyncio.ensure_future(waiting(slots, caller, []))))
            elif step == "leave" and held:
                held[0].release()
            elif step == "cancel" and own:
                own[-1].cancel()
            if not is_settled:
                continue
            await settle()
            served = [(name, task.result()) for name, task in tasks if task.done() and not task.cancelled()]
            placed = Counter(name for name, slot in served if slot.held)
            assert placed.total() <= AT_ONCE and all(count <= SHARE for count in placed.values())
            asking = {name for name, task in tasks if not task.done()}
            assert placed.total() == AT_ONCE or all(placed[name] == SHARE for name in asking), "nobody waits in vain"
            assert slots.all_waiting == sum(not task.done() for _, task in tasks)
        await settle()
        while pending := [task for _, task in tasks if not task.done()]:
            for _, task in tasks:
                if task.done() and not task.cancelled():
                    task.result().release()
            await settle()
            assert len([task for task in pending if not task.done()]) < len(pending)

    asyncio.run(play())
