"""Background work: each queue at its own pace, at least once; a failure of the store does not end it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError

from coordination.log.emit import emit
from coordination.models import Event
from coordination.toolset import COORDINATION, arun
from nexus.core import waiting
from nexus.core.background_work import BackgroundWork, work_forever, work_once
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import Params
from nexus.core.operations.registry import Wait
from nexus.core.operations.replies import Data
from tests.conftest import LOCAL
from tests.core.waiting import LONG, parked

pytestmark = pytest.mark.usefixtures("committed")


class Toys(BackgroundWork[str, str]):
    """Toys to be made, by queue; one stays in its queue until it is settled. Some take until they are let go."""

    name = "toys"
    threads = 4
    tick_seconds = 0.01
    idle_seconds = 0.01

    def __init__(self, **queues: list[str]) -> None:
        self.due = queues
        self.claimed: list[str] = []
        self.made: list[str] = []
        self.settled: list[str] = []
        self.let_go = threading.Event()

    def queues(self) -> Sequence[str]:
        return list(self.due)

    def claim(self, queue: str) -> str | None:
        self.claimed += self.due[queue][:1]
        return next(iter(self.due[queue]), None)

    def act(self, item: str) -> str:
        self.made.append(item)
        if item.startswith("slow"):
            assert self.let_go.wait(LONG)
        return f"{item}, made"

    def given_up(self, item: str, why: str) -> str:
        return f"{item}, given up: {why}"

    def settle(self, item: str, outcome: str) -> bool:
        for items in self.due.values():
            with contextlib.suppress(ValueError):
                items.remove(item)
        self.settled.append(outcome)
        return not item.startswith("hard")


@contextlib.asynccontextmanager
async def at_work(work: BackgroundWork[Any, Any]) -> AsyncIterator[None]:
    task = asyncio.create_task(work_forever(work))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG):
        while not true():
            await asyncio.sleep(0.001)


def test_it_does_what_is_due_once() -> None:
    work = Toys(bears=["a", "b"], trains=["hard c", "d"])
    assert work_once(work) == ["a, made", "b, made", "hard c, made"]  # that queue rests now
    assert work_once(work) == ["d, made"]
    assert work_once(work) == []


async def test_it_goes_on_with_the_next_tick_where_a_lane_should_rest() -> None:
    work = Toys(trains=["hard c", "d"])
    async with at_work(work):
        await until(lambda: work.settled == ["hard c, made", "d, made"])


async def test_it_lets_a_lane_rest_until_the_next_tick() -> None:
    work = Toys(trains=["hard c", "d"])
    work.tick_seconds = LONG
    async with at_work(work):
        await until(lambda: work.settled == ["hard c, made"])
        for _ in range(2):  # the second comes behind whatever the queue would do next
            await waiting.in_thread(waiting.WRITERS, lambda: None)
        assert work.claimed == ["hard c"]


async def test_it_lets_no_lane_wait_for_another() -> None:
    work = Toys(slow=["slow a", "b"], quick=["c", "d"])
    async with at_work(work):
        await until(lambda: "slow a" in work.made and work.settled == ["c, made", "d, made"])
        assert "b" not in work.made  # a queue is done in order
        work.let_go.set()
        await until(lambda: len(work.settled) == 4)
    assert work.settled[2:] == ["slow a, made", "b, made"]


async def test_it_holds_up_no_other_write_while_it_acts() -> None:
    work = Toys(slow=["slow a"])
    async with at_work(work):
        await until(lambda: bool(work.made))
        assert (await arun(LOCAL, "agent_register", {"agent_id": "ann"}))["ok"]
        assert work.settled == []
        work.let_go.set()


async def test_it_does_again_what_was_not_settled() -> None:
    work = Toys(slow=["slow a"])
    async with at_work(work):
        await until(lambda: bool(work.made))
    work.let_go.set()  # cancelled while it acted, as when the process dies
    assert work.settled == []
    assert work_once(work) == ["slow a, made"]
    assert work.made == ["slow a", "slow a"]


@pytest.mark.parametrize("step", ["queues", "claim", "act", "settle"])
async def test_it_goes_on_after_a_failure(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    work, failures = Toys(bears=["a"]), [1, 2]
    really = getattr(work, step)

    def failing(*arguments: Any) -> Any:
        if failures:
            raise OperationalError(f"failure {failures.pop()}, made by the test")
        return really(*arguments)

    monkeypatch.setattr(work, step, failing)
    async with at_work(work):
        await until(lambda: work.settled == ["a, made"])
    assert "failure 1" in caplog.text
    assert "tried again" in caplog.text


async def test_it_logs_the_traceback_of_a_failure_once_and_then_a_count(caplog: pytest.LogCaptureFixture) -> None:
    work, failures = Toys(bears=["a"]), iter(range(9))

    claim = work.claim

    def failing(queue: str) -> str | None:
        if (number := next(failures, None)) is not None:
            raise ValueError(f"failure {number}, made by the test")
        return claim(queue)

    work.claim = failing  # type: ignore[method-assign]
    async with at_work(work):
        await until(lambda: work.settled == ["a, made"] and "again, after" in caplog.text)
    assert caplog.text.count("Traceback") == 1
    told = [record.getMessage() for record in caplog.records if record.name == "nexus.core.background_work"]
    assert len(told) == 5
    assert [line.partition("), ")[2] for line in told[1:4]] == [
        f"{times} times in a row by now." for times in (2, 4, 8)
    ]
    assert told[4] == "toys: bears goes on again, after 9 failures."


async def test_it_logs_no_traceback_of_an_error_that_says_what_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """As where a server ends in the middle of a commit."""
    work, failures = Toys(bears=["a"]), [NexusError(Code.DB_ERROR, "It may have taken effect, or not.")]
    claim = work.claim

    def failing(queue: str) -> str | None:
        if failures:
            raise failures.pop()
        return claim(queue)

    work.claim = failing  # type: ignore[method-assign]
    async with at_work(work):
        await until(lambda: work.settled == ["a, made"])
    assert "(It may have taken effect, or not.); it is tried again" in caplog.text and "Traceback" not in caplog.text


async def test_it_logs_the_traceback_of_each_other_failure(caplog: pytest.LogCaptureFixture) -> None:
    work, failures = Toys(bears=["a"]), [ValueError("one"), ValueError("one"), KeyError("two")]

    claim = work.claim

    def failing(queue: str) -> str | None:
        if failures:
            raise failures.pop(0)
        return claim(queue)

    work.claim = failing  # type: ignore[method-assign]
    async with at_work(work):
        await until(lambda: work.settled == ["a, made"])
    assert caplog.text.count("Traceback") == 2


@pytest.mark.parametrize("step", ["act", "settle"])
async def test_what_fails_twice_for_an_unknown_reason_is_given_up(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    work, really, failed = Toys(bears=["a", "b"]), getattr(Toys, step), list[str]()

    def failing(self: Toys, item: str, *outcome: str) -> Any:
        if item == "a" and "given up" not in str(outcome):
            failed.append(item)
            raise RecursionError("made by the test")
        return really(self, item, *outcome)

    monkeypatch.setattr(Toys, step, failing)
    async with at_work(work):
        await until(lambda: len(work.settled) == 2)
    assert failed == ["a", "a"]
    assert work.settled[0].startswith("a, given up: it failed twice") and "RecursionError" in work.settled[0]
    assert work.settled[1] == "b, made"
    assert "toys: bears was given up" in caplog.text


async def test_what_fails_for_a_known_reason_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    work, failures = Toys(bears=["a"]), [OperationalError("made by the test")] * 3
    made = work.act
    monkeypatch.setattr(work, "act", lambda item: made(item) if not failures else _raise(failures.pop()))
    async with at_work(work):
        await until(lambda: work.settled == ["a, made"])


def _raise(error: Exception) -> str:
    raise error


async def test_it_finds_lanes_that_come_later() -> None:
    work = Toys()
    async with at_work(work):
        await waiting.in_thread(waiting.READERS, lambda: None)
        work.due["bears"] = ["a"]
        await until(lambda: work.settled == ["a, made"])


# An operation stores the intent, a task of the hub acts, a wait tells how it went


class Order(Params):
    timeout_seconds: int = LONG


class Orders(Toys):
    """The log is the queue: an order is due until a settlement follows it."""

    watches_log = True
    tick_seconds = 1000.0  # only the log wakes it

    def claim(self, queue: str) -> str | None:
        return "slow toy" if count("toy.ordered") > count("toy.made") else None

    def settle(self, item: str, outcome: str) -> bool:
        say("toy.made", outcome)
        return True


def say(type: str, told: str) -> None:
    with write():
        emit(workspace_id=None, stream="agent", type=type, actor=None, payload={"told": told}, moment=now())


def count(type: str) -> int:
    return Event.objects.filter(type=type).count()


def told(p: Order, caller: Caller) -> Data:
    outcome = Event.objects.filter(type="toy.made").first()
    return {"toy": outcome.payload["told"] if outcome else None}


def order(p: Order, caller: Caller) -> Data:
    """Order a toy and wait until it is made."""
    say("toy.ordered", "a toy")
    return told(p, caller)


WAIT = Wait[Order](
    timeout=lambda p: p.timeout_seconds,
    interested=lambda p: lambda event: event.type == "toy.made",
    look=told,
    done=lambda data: data["toy"] is not None,
    expired=lambda p, data: data,
)


async def test_it_tells_who_waits_how_the_work_went(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = replace(COORDINATION.operations["nexus_info"], name="order", params=Order, call=order, wait=WAIT)
    monkeypatch.setitem(COORDINATION.operations, "order", replace(declared, read_only=False))
    work = Orders(orders=[])
    async with at_work(work):
        await parked()
        asked = asyncio.create_task(arun(LOCAL, "order", {}))
        await until(lambda: bool(work.made))
        assert (await arun(LOCAL, "agent_register", {"agent_id": "ann"}))["ok"]  # others write meanwhile
        work.let_go.set()
        assert (await asyncio.wait_for(asked, LONG))["data"] == {"toy": "slow toy, made"}
    assert await waiting.in_thread(waiting.READERS, lambda: (count("toy.ordered"), count("toy.made"))) == (1, 1)
