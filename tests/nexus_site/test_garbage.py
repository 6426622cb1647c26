"""When a hub searches for garbage."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from nexus.core.fairness import Turn, turns
from nexus_site.serving import garbage
from tests.acceptance.hub import START_SECONDS


@pytest.fixture
async def searched(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[int]]:
    """The generations that were searched since the hub looks after garbage."""
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(garbage, "OBJECTS", 1_000)
    monkeypatch.setattr(garbage, "GROWN", 1.1)
    monkeypatch.setattr(garbage, "MUCH_GROWN", 1.3)
    generations: list[int] = []

    def note(phase: str, about: dict[str, Any]) -> None:
        if phase == "stop":
            generations.append(about["generation"])

    before = gc.get_threshold()
    collecting = asyncio.create_task(garbage.collect())
    await asyncio.sleep(0)
    gc.callbacks.append(note)
    yield generations
    gc.callbacks.remove(note)
    collecting.cancel()
    await asyncio.gather(collecting, return_exceptions=True)
    gc.unfreeze()
    assert gc.get_threshold() == before


def objects(count: int) -> list[list[int]]:
    return [[number] for number in range(count)]


def filled(times: float) -> list[list[int]]:
    """So many objects that the memory is so many times what it was."""
    return [[] for _ in range(int(sys.getallocatedblocks() * (times - 1)))]


async def until_old_ones_are(searched: list[int]) -> None:
    async with asyncio.timeout(START_SECONDS):
        while 2 not in searched:
            await asyncio.sleep(0.001)


async def test_a_full_search_waits_while_a_call_is_served_and_until_nobody_has_called_for_a_while(
    searched: list[int],
) -> None:
    turn = Turn(turns(), "ann")
    await turn.acquire()
    kept = filled((garbage.GROWN + garbage.MUCH_GROWN) / 2)
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert 1 in searched and 2 not in searched
    turn.release()
    so_far = searched.count(1)
    while searched.count(1) < so_far + 30:
        for _ in range(garbage.FEW + 1):  # calls leave new objects
            ring: list[Any] = []
            ring.append(ring)
        await asyncio.sleep(0)
    assert 2 not in searched
    await until_old_ones_are(searched)
    assert kept


async def test_it_does_not_wait_for_ever(searched: list[int]) -> None:
    turn = Turn(turns(), "ann")
    await turn.acquire()
    kept = filled(garbage.MUCH_GROWN * 1.1)
    await until_old_ones_are(searched)
    assert turn.held and kept
    turn.release()


async def test_only_what_is_new_is_searched_between_calls_and_nothing_without_any(searched: list[int]) -> None:
    gc.collect()  # of what other tests left
    searched.clear()
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert 2 not in searched
    kept = []
    for _ in range(20):
        kept.append(objects(garbage.FEW + 1))
        await asyncio.sleep(0.001)
    assert 1 in searched and 2 not in searched
    assert kept


async def test_little_garbage_goes_once_the_hub_is_idle(searched: list[int]) -> None:
    class Answer:
        """What holds itself, and much."""

        def __init__(self) -> None:
            self.itself, self.text = self, "x" * 1_000_000

    gone = weakref.ref(Answer())
    assert gone() is not None
    kept = objects(garbage.FEW + 1)
    while gone() is not None:
        await asyncio.sleep(0.001)
    assert kept


class Session:
    """What holds itself, and much that goes at once when it ends."""

    def __init__(self) -> None:
        self.itself = self
        self.holds: list[list[int]] = [[] for _ in range(sys.getallocatedblocks() // 2)]


async def survive(searched: list[int]) -> None:
    """Return once the hub was idle for so long that old objects were searched."""
    kept = objects(2 * garbage.FEW)
    await until_old_ones_are(searched)
    assert kept
    searched.clear()


@pytest.mark.parametrize("much", [False, True])
async def test_what_survived_is_searched_again_only_once_much_of_the_memory_was_given_back(
    searched: list[int], much: bool
) -> None:
    session = Session()
    if not much:
        session.holds.clear()
    ended = weakref.ref(session)
    await survive(searched)
    session.holds.clear()
    del session
    if much:
        while ended() is not None:
            await asyncio.sleep(0.001)
    else:
        await survive(searched)
        assert ended() is not None
