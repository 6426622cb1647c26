"""Providers that are out: no run starts on a runner that is known to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.test import Client as Browser

from coordination.models import Event
from inbox.monitoring import Picture
from nexus.control.attention import KINDS
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import Entry, Outage, PoolAgent, Role, Turn, TurnStatus
from nexus.control.runners import acp, configuration
from nexus.control.runners.base import Scene
from nexus.control.runners.configuration import FILE
from nexus.control.services import outages, turns
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import READERS, WRITERS, in_thread
from nexus.web.login import local_account
from tests.control.openai_server import Server, refuses, says, serving
from tests.control.playing import at_hand, command, lead, pool, refused, say, send, settle, take
from tests.control.pool import asend, create, ended
from tests.control.turns import newest_first
from tests.pages import act, shown

__all__ = ["at_hand", "lead"]
OVERLOADED, KEY = Fault(FaultKind.OVERLOADED), Fault(FaultKind.KEY)
MODEL = '[runners.{name}]\nkind = "model"\nmodel = "openai:small"\nbase_url = "{url}"\nretries = 0\n'


@pytest.fixture(autouse=True)
def own_home(configure: Callable[..., None], tmp_path: Path) -> None:
    """The runners' file of a test is in no home that another test uses."""
    configure(home=tmp_path / "home")


def write_runners(text: str) -> None:
    home = CoreSettings.current().home
    home.mkdir(exist_ok=True)
    (home / FILE).write_text(text)


def agents(*names: str, runner: str = "small") -> None:
    for name in names:
        pool("pool_create_agent", agent_id=name, preset="trusted", model=runner)


@pytest.fixture
def small(at_hand: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three agents of one runner, one of another; nothing listens at their addresses."""
    monkeypatch.chdir(at_hand)
    url = "http://127.0.0.1:9/v1"
    write_runners(MODEL.format(name="small", url=url) + 'api_key_env = "SMALL_KEY"\n' + MODEL.format(name="b", url=url))
    monkeypatch.setenv("SMALL_KEY", "k")
    agents("ann", "bob", "cem")
    agents("eve", runner="b")


def fail(turn: Turn, fault: Fault = OVERLOADED) -> None:
    settle(turn, TurnStatus.FAILED, why="the provider is away", fault=fault)


def waiting() -> list[str]:
    """The agents whose turns may start."""
    names = dict(PoolAgent.objects.values_list("pk", "agent_id"))
    return [names[pk] for _, pk, _ in turns.waiting()]


def events() -> list[str]:
    return list(Event.objects.filter(type__startswith="provider.").order_by("event_id").values_list("type", flat=True))


def test_nothing_starts_on_a_runner_that_is_out_until_one_run_tries_it(small: None) -> None:
    with time_machine.travel(now(), tick=False) as clock:
        for name in ("ann", "bob", "cem", "eve"):
            send(name)
        fail(take(), Fault(FaultKind.OVERLOADED, 60))
        assert waiting() == ["eve"], "only the other runner"
        (row,) = pool("pool_list_outages")["outages"]
        assert (row["runner"], row["fault"], row["why"]) == ("small", "overloaded", "the provider is away")
        assert (row["failures"], row["waiting"], row["fallback"]) == (1, 3, None)
        clock.shift(60)
        first = waiting()
        assert first == ["ann", "bob", "cem", "eve"]
        trying = take()
        assert waiting() == ["eve"], "one tries it"
        fail(trying)
        assert Outage.objects.get().failures == 2 and waiting() == ["eve"]
        clock.shift(20)
        settle(take(), answer="Done.")
        assert not Outage.objects.exists() and waiting() == ["bob", "cem", "eve"]
    assert events() == ["provider.out", "provider.back"], "one event, however often it was tried"
    assert pool("pool_list_runs", outcome="failed")["runs"] == []


def test_runs_that_fail_at_once_are_one_failure(small: None) -> None:
    for name in ("ann", "bob", "cem"):
        send(name)
    with time_machine.travel(now(), tick=False):
        for turn in [take(), take(), take()]:
            fail(turn)
        outage = Outage.objects.get()
        assert outage.failures == 1 and outage.until == now() + timedelta(seconds=10)
    assert events() == ["provider.out"]


def test_a_success_of_a_run_that_was_under_way_does_not_cut_the_named_time_short(small: None) -> None:
    for name in ("ann", "bob"):
        send(name)
    first, second = take(), take()
    fail(first, Fault(FaultKind.OVERLOADED, 60))
    settle(second, answer="It answered before.")
    assert Outage.objects.exists() and waiting() == []


def test_a_refused_key_waits_for_a_person_or_another_key(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    send("ann")
    fail(take(), KEY)
    with time_machine.travel(now() + timedelta(days=30)):
        assert waiting() == []
    kind = next(kind for kind in KINDS if kind.name == "outages")
    (need,) = kind.find(Picture(now()), 10).needs
    assert (need.title, need.subject) == ("The provider of small refuses its key", "small")
    monkeypatch.setenv("SMALL_KEY", "another")
    assert waiting() == ["ann"], "another key"
    monkeypatch.setenv("SMALL_KEY", "k")
    assert waiting() == []
    path = CoreSettings.current().home / FILE
    path.write_text(path.read_text().replace(":9/v1", ":10/v1"))
    assert waiting() == ["ann"], "another address"


def test_a_person_lets_runs_start_again(small: None, browser: Browser) -> None:
    browser.force_login(local_account())  # its runners start programs
    send("ann")
    fail(take(), Fault(FaultKind.QUOTA, 3_600))
    page = " ".join(shown(browser.get("/admin/pool/")).split())
    assert "Providers that are out" in page and "the provider is away" in page
    assert "nothing is left of its quota" in shown(browser.get("/admin/attention/"))
    act(browser, do="pool_reset_outage small")
    assert waiting() == ["ann"] and Turn.objects.get().due_at is None
    assert "Providers that are out" not in shown(browser.get("/admin/pool/"))
    assert refused("pool_reset_outage", runner="small")["code"] == "NOT_FOUND"
    assert Event.objects.get(type="provider.reset").payload["runner"] == "small"


def test_a_run_that_changed_files_fails_but_its_provider_is_known_to_be_out(small: None) -> None:
    send("ann")
    send("bob")
    turn = take()
    say(turn, Role.ASSISTANT, "", meta={"tool_calls": [{"id": "1", "name": "write_file"}]})
    fail(turn)
    assert Turn.objects.get(pk=turn.pk).status == TurnStatus.FAILED and waiting() == []


def test_the_command_lists_and_resets(committed: None, small: None) -> None:
    send("ann")
    fail(take(), KEY)
    assert "the provider is away" in command("runners", "outages")
    command("runners", "reset", "small")
    assert not Outage.objects.exists()


def with_fallback(more: str = "") -> None:
    path = CoreSettings.current().home / FILE
    text = path.read_text().replace("[runners.small]", '[runners.small]\nfallback = "b"')
    path.write_text(text.replace("[runners.b]", f"[runners.b]\n{more}"))


def test_the_fallback_takes_over_where_the_operator_allowed_it(small: None, browser: Browser) -> None:
    with_fallback()
    send("ann")
    fail(take(), KEY)
    turn = take()
    assert (turn.runner, turn.put_back) == ("b", 1)
    assert pool("pool_get_run", run_id=turn.pk)["runner"] == "b"
    browser.force_login(local_account())
    assert "the fallback of" in shown(browser.get(f"/admin/runs/{turn.pk}/"))
    assert pool("pool_list_outages")["outages"][0]["fallback"] == "b"
    fail(turn, KEY)
    assert waiting() == [] and Outage.objects.count() == 2, "both are out"
    pool("pool_reset_outage", runner="small")
    turn = take()
    assert turn.runner is None
    settle(turn, answer="Done.")


def test_fallbacks_in_a_circle_end(small: None) -> None:
    with_fallback('fallback = "small"\n')
    send("ann")
    fail(take(), KEY)
    fail(take(), KEY)
    assert waiting() == []


@pytest.mark.parametrize("name", ["nobody", "small"])
def test_a_fallback_is_another_runner(small: None, name: str) -> None:
    path = CoreSettings.current().home / FILE
    path.write_text(path.read_text().replace("[runners.small]", f'[runners.small]\nfallback = "{name}"'))
    with pytest.raises(NexusError, match="there is no other runner"):
        configuration.read(path)


@pytest.mark.parametrize(
    ("last", "runner_name", "session"),
    [(None, "small", "s1"), (None, "b", None), ("b", "small", None), ("b", "b", "s2")],
)
async def test_a_session_is_continued_only_if_no_other_runner_came_between(
    committed: None, small: None, last: str | None, runner_name: str, session: str | None
) -> None:
    def played() -> tuple[Turn, list[Entry]]:
        send("ann", "first")
        turn = take()
        say(turn, Role.ASSISTANT, "A", meta={"acp_session": "s1"})
        settle(turn)
        if last is not None:
            fail_first = outages.note_fault(configuration.runners().named("small"), KEY, "away", now())
            with_fallback()
            outages.note_fault(configuration.runners().named("small"), KEY, "away", now())
            send("ann", "second")
            turn = take()
            assert turn.runner == last and fail_first is not None
            say(turn, Role.ASSISTANT, "B", meta={"acp_session": "s2", "runner": last})
            settle(turn)
            if runner_name == "small":
                outages.reset("small", "ops")
        elif runner_name == "b":
            with_fallback()
            outages.note_fault(configuration.runners().named("small"), KEY, "away", now())
        send("ann", "third")
        return take(), list(Entry.objects.order_by("position"))

    turn, entries = await in_thread(WRITERS, played)
    assert (turn.runner or "small") == runner_name
    scene = Scene(turn.agent, turn, lambda: newest_first(entries), None, None, None)  # type: ignore[arg-type]
    assert await acp._known_session(scene) == session


async def runs_over(url: str, tmp_path: Path, other: str = "") -> list[str]:
    """Runs of two agents whose model is at this address; their turn_ids."""
    text = MODEL.format(name="small", url=url)
    if other:
        text += 'fallback = "b"\n' + MODEL.format(name="b", url=other)
    write_runners(text)
    for name in ("ann", "bob"):
        await in_thread(WRITERS, lambda name=name: create(name, cwd=str(tmp_path), runner="small"))  # type: ignore[misc]
    return [await asend(name, f"I am for {name}.") for name in ("ann", "bob")]


async def out() -> Outage:
    """The outage, once there is one."""
    while True:
        if found := await in_thread(READERS, lambda: Outage.objects.first()):
            return found
        await asyncio.sleep(0)


def asked(server: Server) -> int:
    return len(server.asked)


@pytest.mark.usefixtures("starts_processes")
async def test_a_worker_asks_a_provider_that_refuses_the_key_once(
    configure: Callable[..., None], worker: Worker, tmp_path: Path
) -> None:
    configure(pool_turns=1)
    with serving(refuses(401, "bad key"), says("Done.")) as (server, url):
        sent = await runs_over(url, tmp_path)
        assert (await out()).fault == "key"
        for _ in range(3):
            await worker._claim()
        assert asked(server) == 1
        await in_thread(WRITERS, lambda: outages.reset("small", "ops"))
        assert [(await ended(turn_id)).answer for turn_id in sent] == ["Done.", "Done."]
        assert asked(server) == 3


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("reply", [refuses(429, retry_after="600"), refuses(401, "bad key")])
async def test_a_worker_goes_on_with_the_fallback_that_knows_what_was_said(
    worker: Worker, tmp_path: Path, reply: Any
) -> None:
    with serving(reply) as (server, url), serving(says("From the other.")) as (other, other_url):
        sent = await runs_over(url, tmp_path, other_url)
        turns_ended = [await ended(turn_id) for turn_id in sent]
    assert [(turn.answer, turn.runner) for turn in turns_ended] == [("From the other.", "b")] * 2
    assert asked(server) <= 2 and asked(other) == 2
    said = [message["content"] for body in other.asked for message in body["messages"] if message["role"] == "user"]
    assert sorted(said) == ["I am for ann.", "I am for bob."]


@pytest.mark.usefixtures("starts_processes")
async def test_a_refused_connection_is_an_outage(worker: Worker, tmp_path: Path) -> None:
    with serving(says("never")) as (_server, url):
        pass  # nobody listens any more
    await runs_over(url, tmp_path)
    outage = await out()
    assert outage.fault == "unreachable" and outage.until is not None
