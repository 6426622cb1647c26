"""The long poll for work."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from asgiref.sync import sync_to_async

from coordination.toolset import arun, run
from handoffs import selectors
from nexus.core.waiting import waiter
from tests.conftest import LOCAL, Call
from tests.handoffs.conftest import Offer

pytestmark = pytest.mark.usefixtures("committed", "team")

LONG = 30  # seconds nobody here waits for: a wait that has to be woken fails the test when half of them are over
MOMENT = timedelta(milliseconds=300)


def waiting(project: str, agent: str, seconds: float = LONG) -> asyncio.Task[dict[str, Any]]:
    """A long poll on its way."""
    return asyncio.create_task(
        arun(
            LOCAL,
            "handoff_list_available",
            {"project_root": project, "agent_id": agent, "timeout_seconds": seconds},
        )
    )


async def parked() -> None:
    """Return once a wait is parked."""
    while not waiter().parked:
        await asyncio.sleep(0.001)


async def act(name: str, **arguments: Any) -> dict[str, Any]:
    """Call an operation on a thread of its own."""
    envelope = await sync_to_async(run)(LOCAL, name, arguments)
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


async def found(poll: asyncio.Task[dict[str, Any]]) -> list[str]:
    """What a wait was woken for."""
    envelope = await asyncio.wait_for(poll, LONG / 2)
    assert envelope["ok"], envelope
    assert envelope["data"]["timed_out"] is False
    return [handoff["handoff_id"] for handoff in envelope["data"]["handoffs"]]


async def test_it_answers_at_once_when_there_is_work(project: str, offer: Offer) -> None:
    handoff = await sync_to_async(offer)()

    assert await found(waiting(project, "bob")) == [handoff]


async def test_it_wakes_when_work_that_one_may_claim_comes_and_not_before(project: str, offer: Offer) -> None:
    poll = waiting(project, "cleo")
    await parked()
    await sync_to_async(offer)(target={"strategy": "direct", "agent_id": "bob"})
    handoff = await sync_to_async(offer)()

    assert await found(poll) == [handoff]


async def test_it_wakes_when_the_last_that_work_waits_for_is_done(project: str, offer: Offer) -> None:
    firsts = [await sync_to_async(offer)() for _ in range(2)]
    waits = await sync_to_async(offer)(depends_on=firsts, target={"strategy": "direct", "agent_id": "cleo"})
    for first in firsts:
        await act("handoff_claim", project_root=project, handoff_id=first, agent_id="bob")
    poll = waiting(project, "cleo")
    await parked()
    for first in firsts:
        await act("handoff_complete", project_root=project, handoff_id=first, agent_id="bob")

    assert await found(poll) == [waits]


async def test_it_wakes_when_a_lease_lapses(project: str, offer: Offer) -> None:
    with time_machine.travel(datetime.now(UTC) - timedelta(seconds=300) + MOMENT):
        handoff = await sync_to_async(offer)()
        await act("handoff_claim", project_root=project, handoff_id=handoff, agent_id="bob")

    assert await found(waiting(project, "cleo")) == [handoff]


async def test_it_wakes_when_a_fallback_opens(project: str, offer: Offer) -> None:
    target = {"strategy": "direct_with_fallback", "agent_id": "bob", "fallback_after_seconds": 60}
    with time_machine.travel(datetime.now(UTC) - timedelta(seconds=60) + MOMENT):
        handoff = await sync_to_async(offer)(target=target)

    assert await found(waiting(project, "cleo")) == [handoff]


async def test_it_misses_no_fallback_that_opens_while_it_looks(
    project: str, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = {"strategy": "direct_with_fallback", "agent_id": "bob", "fallback_after_seconds": 60}
    next_change = selectors.next_change
    with time_machine.travel(datetime(2026, 3, 1, 12, tzinfo=UTC), tick=False) as clock:
        handoff = await sync_to_async(offer)(target=target)

        def just_as_it_opens(workspace_id: str) -> datetime | None:
            clock.move_to(datetime(2026, 3, 1, 12, 1, tzinfo=UTC))
            return next_change(workspace_id)

        monkeypatch.setattr(selectors, "next_change", just_as_it_opens)

        assert await found(waiting(project, "cleo")) == [handoff]


async def test_it_looks_on_by_itself_through_a_list_that_takes_many_looks(
    project: str, offer: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selectors, "READ_AT_ONCE", 2)
    monkeypatch.setattr(selectors, "EXAMINED_AT_ONCE", 2)
    for _ in range(5):
        await sync_to_async(offer)(target={"strategy": "direct", "agent_id": "bob"})
    handoff = await sync_to_async(offer)()

    assert await found(waiting(project, "cleo")) == [handoff]


async def test_it_gives_up_empty_handed_when_time_runs_out(project: str) -> None:
    envelope = await waiting(project, "bob", seconds=0.05)

    assert envelope["data"] == {"handoffs": [], "next_cursor": None, "has_more": False, "timed_out": True}


async def test_it_waits_no_longer_than_the_ceiling(project: str, configure: Call) -> None:
    configure(max_wait_timeout_seconds=0)

    assert (await waiting(project, "bob"))["data"]["timed_out"] is True
