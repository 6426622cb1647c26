"""Runs that a fault of their provider ends: started again later, unless they may have changed files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine

from coordination.models import Event
from nexus.control.agents import turns
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import Entry, PoolAgent, Role, Turn, TurnStatus
from nexus.control.runners_file import FILE
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.waiting import WRITERS, in_thread
from tests.control.openai_server import Reply, calls, hangs_up, refuses, says, serving
from tests.control.playing import at_hand, lead, pool, say, send, settle, take
from tests.control.pool import asend, create, ended
from tests.pages import shown

__all__ = ["at_hand", "lead"]
OVERLOADED = Fault(FaultKind.OVERLOADED)
WRITES: dict[str, Any] = {"tool_calls": [{"id": "1", "name": "write_file", "arguments": {}}]}
READS: dict[str, Any] = {"tool_calls": [{"id": "1", "name": "read_file", "arguments": {}}]}


@pytest.fixture(autouse=True)
def own_home(configure: Callable[..., None], tmp_path: Path) -> None:
    """The runners' file of a test is in no home that another test uses."""
    configure(home=tmp_path / "home")


def fail(turn: Turn, fault: Fault = OVERLOADED, **more: Any) -> Turn:
    settle(turn, TurnStatus.FAILED, why="the provider is away", fault=fault, **more)
    return Turn.objects.get(pk=turn.pk)


def test_a_run_that_changed_nothing_waits_and_is_started_again(lead: PoolAgent) -> None:
    send("lead", "Read it.", request_id="r")
    send("lead", "Then this.")
    with time_machine.travel(now(), tick=False) as clock:
        turn = take()
        say(turn, Role.ASSISTANT, "", meta=READS)
        turn = fail(turn, Fault(FaultKind.OVERLOADED, 90), input_tokens=5)
        assert (turn.status, turn.put_back, turn.due_at) == (TurnStatus.QUEUED, 1, now() + timedelta(seconds=90))
        run = pool("pool_get_run", run_id=turn.pk)
        assert (run["outcome"], run["why"], run["put_back"]) == ("queued", "the provider is away", 1)
        assert not run["needs_person"] and pool("pool_list_runs", which="needing_person")["runs"] == []
        clock.shift(89)
        assert turns.queued_turns() == [], "neither it, nor what was sent later"
        clock.shift(1)
        assert [turn_id for turn_id, _, _ in turns.queued_turns()] == [turn.pk]
        settle(take(), answer="Done.", input_tokens=7)
    turn.refresh_from_db()
    assert (turn.status, turn.answer, turn.why, turn.input_tokens) == (TurnStatus.DONE, "Done.", None, 12)
    told = Event.objects.filter(type="turn.put_back").get()
    assert told.payload["fault"] == "overloaded" and told.payload["turn_id"] == turn.pk
    assert pool("pool_send", agent_id="lead", content="Read it.", request_id="r")["content"] == "Done."


def test_its_message_stands_in_the_transcript_again_only_after_what_it_did(lead: PoolAgent) -> None:
    def said() -> list[tuple[str, str]]:
        return list(Entry.objects.order_by("position").values_list("role", "content"))

    send("lead", "Go.")
    fail(take(), Fault(FaultKind.FAILING, 0))
    with time_machine.travel(now() + timedelta(minutes=1)):
        turn = take()
        assert said() == [("user", "Go.")]
        say(turn, Role.ASSISTANT, "I read.", meta=READS)
        fail(turn, Fault(FaultKind.FAILING, 0))
    with time_machine.travel(now() + timedelta(minutes=2)):
        take()
    assert said() == [("user", "Go."), ("assistant", "I read."), ("user", "Go.")]


@pytest.mark.parametrize("how", ["a tool", "the runner"])
def test_a_run_that_may_have_changed_files_is_left_to_a_person(lead: PoolAgent, browser: Any, how: str) -> None:
    send("lead")
    turn = take()
    if how == "a tool":
        say(turn, Role.ASSISTANT, "", meta=WRITES)
    turn = fail(turn, has_written=how == "the runner")
    assert (turn.status, turn.put_back) == (TurnStatus.FAILED, 0) and turn.needs_person_since is not None
    assert "it may have changed files, so a person decides" in (turn.why or "")
    assert "so a person decides" in shown(browser.get(f"/admin/control/turn/{turn.pk}/change/"))
    again = pool("pool_retry_run", run_id=turn.pk)
    assert again["retry_of"] == turn.pk


def test_it_ends_after_as_many_tries_as_its_runner_allows(lead: PoolAgent, at_hand: Path) -> None:
    (at_hand.parent / "home" / FILE).write_text('[runners.rehearsal]\nkind = "rehearsal"\nrun_retries = 3\n')
    send("lead")
    waits = []
    with time_machine.travel(now(), tick=False) as clock:
        for _ in range(3):
            turn = fail(take())
            assert turn.due_at is not None
            waits.append((turn.due_at - now()).total_seconds())
            clock.move_to(turn.due_at)
        turn = fail(take())
    assert waits == [10, 20, 40]
    assert turn.status == TurnStatus.FAILED and turn.why == "the provider is away; it was started 4 times"
    assert turn.needs_person_since is not None


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [
        (Fault(FaultKind.OVERLOADED, 0), 1),
        (Fault(FaultKind.UNREACHABLE, 7.5), 7.5),
        (Fault(FaultKind.OVERLOADED, 1e300), 3_600),
    ],
)
def test_it_waits_as_long_as_the_provider_says_within_bounds(lead: PoolAgent, fault: Fault, seconds: float) -> None:
    send("lead")
    with time_machine.travel(now(), tick=False):
        turn = fail(take(), fault)
        assert turn.due_at == now() + timedelta(seconds=seconds)


def test_a_run_that_waits_is_cancelled_at_once(lead: PoolAgent, browser: Any) -> None:
    send("lead", request_id="r")
    turn = fail(take())
    page = shown(browser.get(f"/admin/control/turn/{turn.pk}/change/"))
    assert "after a fault of its provider, 1 time; it starts" in " ".join(page.split())
    assert pool("pool_cancel", agent_id="lead", request_id="r")["cancelled"]
    turn.refresh_from_db()
    assert turn.status == TurnStatus.CANCELLED


def test_a_run_whose_end_was_asked_for_or_whose_agent_ended_is_not_started_again(lead: PoolAgent) -> None:
    send("lead", request_id="r")
    turn = take()
    pool("pool_cancel", agent_id="lead", request_id="r")
    assert fail(turn).status == TurnStatus.FAILED
    send("lead")
    turn = take()
    pool("pool_destroy_agent", agent_id="lead")
    assert fail(turn).status == TurnStatus.CANCELLED


def model(url: str, **more: Any) -> str:
    fields = {"kind": "model", "model": "openai:small", "base_url": url, "retries": 0, **more}
    return "[runners.small]\n" + "".join(f"{name} = {value!r}\n" for name, value in fields.items())


async def run_with(url: str, tmp_path: Path) -> str:
    """A run of an agent whose model is at this address; its turn_id."""
    home = CoreSettings.current().home
    home.mkdir(exist_ok=True)
    (home / FILE).write_text(model(url))
    (tmp_path / "notes.txt").write_text("one\n")
    await in_thread(WRITERS, lambda: create("ann", cwd=str(tmp_path), runner="small"))
    return await asend("ann", "Read it.")


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (refuses(429, retry_after="1"), "overloaded"),
        (refuses(500, retry_after="1"), "failing"),
        (hangs_up, "unreachable"),
    ],
    ids=["429", "500", "hangs up"],
)
async def test_a_worker_starts_it_again_when_the_provider_answers(
    worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: Reply, kind: str
) -> None:
    monkeypatch.setattr("nexus.control.faults.FIRST_WAIT", 0.1)
    reads = calls(("read_file", {"path": "notes.txt"}))
    with serving(reads, reply, says("At last.")) as (server, url):
        turn = await ended(await run_with(url, tmp_path))
    assert (turn.status, turn.answer, turn.put_back) == ("done", "At last.", 1), turn.why
    faults = await in_thread(WRITERS, lambda: [each.payload for each in Event.objects.filter(type="turn.put_back")])
    assert [fault["fault"] for fault in faults] == [kind]
    assert [message["role"] for message in server.asked[-1]["messages"]][-3:] == ["assistant", "tool", "user"]


@pytest.mark.usefixtures("starts_processes")
async def test_a_request_that_is_wrong_is_not_tried_again(worker: Worker, tmp_path: Path) -> None:
    with serving(refuses(400, "no such model"), says("never")) as (server, url):
        turn = await ended(await run_with(url, tmp_path))
    assert (turn.status, turn.put_back, len(server.asked)) == ("failed", 0, 1)


@pytest.mark.usefixtures("starts_processes")
async def test_a_time_that_a_run_does_not_wait_for_ends_it_at_once(worker: Worker, tmp_path: Path) -> None:
    """The run waits outside, where it takes no place of the pool's, as long as the provider says."""
    with serving(refuses(429, retry_after="120")) as (server, url):
        turn_id = await run_with(url, tmp_path)
        while (turn := await in_thread(WRITERS, lambda: Turn.objects.get(pk=turn_id))).put_back == 0:
            await asyncio.sleep(0)
    assert len(server.asked) == 1 and turn.status == TurnStatus.QUEUED and turn.due_at is not None
    assert (turn.due_at - now()) > timedelta(seconds=100)
