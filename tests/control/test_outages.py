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
from nexus.control import runners_file
from nexus.control.agents import outages, turns
from nexus.control.attention import KINDS
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import Entry, Outage, PoolAgent, Role, Turn, TurnStatus
from nexus.control.runners import acp
from nexus.control.runners.base import Scene
from nexus.control.runners_file import FILE
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import READERS, WRITERS, in_thread
from nexus.web.login import local_account
from tests.control.openai_server import Server, refuses, says, serving
from tests.control.playing import at_hand, command, lead, pool, refused, say, send, settle, take
from tests.control.pool import ADMIN, asend, create, ended
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


def asks(agent_id: str) -> Turn:
    """A turn whose sender waits for the answer."""
    return turns.send(ADMIN, agent_id, content="Go.", request_id=None, source="test", waits=300)


def take_of(agent_id: str) -> Turn:
    """Start the agent's turn."""
    turn = turns.claim(Turn.objects.queued().filter(agent__agent_id=agent_id).latest("pk").pk)
    assert turn is not None
    return turn


def waiting() -> list[str]:
    """The agents whose turns may start."""
    names = dict(PoolAgent.objects.values_list("pk", "agent_id"))
    return [names[pk] for _, pk, _ in turns.queued_turns()]


def events() -> list[str]:
    return list(Event.objects.filter(type__startswith="provider.").order_by("event_id").values_list("type", flat=True))


def break_down(*names: str, fault: Fault = OVERLOADED) -> None:
    """Let a turn of each agent meet a fault, all of them at once."""
    for name in names:
        send(name)
    for turn in [take_of(name) for name in names]:
        fail(turn, fault)


def test_nothing_starts_on_a_runner_that_two_agents_say_is_out(small: None) -> None:
    with time_machine.travel(now(), tick=False) as clock:
        break_down("ann", fault=Fault(FaultKind.OVERLOADED, 60))
        for name in ("bob", "cem", "eve"):
            send(name)
        assert waiting() == ["bob", "cem", "eve"], "one agent stops nobody else"
        assert [row["confirmed"] for row in pool("pool_list_outages")["outages"]] == [False] and events() == []
        fail(take_of("bob"), Fault(FaultKind.OVERLOADED, 60))
        assert waiting() == ["eve"], "only the other runner"
        (row,) = pool("pool_list_outages")["outages"]
        assert (row["runner"], row["fault"], row["why"]) == ("small", "overloaded", "the provider is away")
        assert (row["confirmed"], row["failures"], row["waiting"], row["fallback"]) == (True, 1, 3, None)
        clock.shift(60)
        assert waiting() == ["ann", "bob", "cem", "eve"]
        fail(take_of("ann"))
        assert waiting() == ["bob", "cem", "eve"], "again it takes two"
        fail(take_of("bob"))
        assert Outage.objects.get().failures == 2 and waiting() == ["eve"]
        clock.shift(20)
        settle(take_of("cem"), answer="Done.")
        assert not Outage.objects.exists() and waiting() == ["ann", "bob", "eve"]
    assert events() == ["provider.out", "provider.back"], "one event, however often it was tried"
    assert pool("pool_list_runs", outcome="failed")["runs"] == []


def test_runs_that_fail_at_once_are_one_failure(small: None) -> None:
    with time_machine.travel(now(), tick=False):
        break_down("ann", "bob", "cem")
        outage = Outage.objects.get()
        assert outage.failures == 1 and outage.until == now() + timedelta(seconds=10)
    assert events() == ["provider.out"]


def test_an_agent_and_those_that_it_created_are_one_voice(small: None) -> None:
    for name in ("one", "two"):
        pool("pool_create_agent", agent_id=name, preset="worker", model="small", parent_agent_id="ann")
    with time_machine.travel(now(), tick=False):
        break_down("ann", "one", "two", fault=KEY)
        send("bob")
        assert waiting() == ["bob"] and not Outage.objects.get().is_confirmed
        fail(take_of("bob"), KEY)
        assert Outage.objects.get().is_confirmed


@pytest.mark.parametrize("fault", [Fault(FaultKind.OVERLOADED, 604_800), KEY, Fault(FaultKind.QUOTA)])
def test_no_outage_lasts_longer_than_an_hour(small: None, fault: Fault) -> None:
    with time_machine.travel(now(), tick=False) as clock:
        break_down("ann", "bob", fault=fault)
        send("cem")
        assert waiting() == []
        clock.shift(3_600)
        assert waiting() == ["ann", "bob", "cem"]


def test_the_first_success_ends_it(small: None) -> None:
    with time_machine.travel(now(), tick=False):
        send("cem")
        under_way = take()
        break_down("ann", "bob", fault=Fault(FaultKind.OVERLOADED, 600))
        assert waiting() == []
        settle(under_way, answer="It answers.")
        assert not Outage.objects.exists() and waiting() == ["ann", "bob"]


def test_faults_of_two_kinds_and_those_long_ago_confirm_nothing(small: None) -> None:
    with time_machine.travel(now(), tick=False) as clock:
        break_down("ann", fault=KEY)
        break_down("bob")
        assert not Outage.objects.get().is_confirmed
        clock.shift(7_200)
        break_down("cem")
        assert not Outage.objects.get().is_confirmed


def test_a_refused_key_is_told_at_once_and_another_key_is_tried_at_once(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_down("ann", fault=KEY)
    kind = next(kind for kind in KINDS if kind.name == "outages")
    (need,) = kind.find(Picture(now()), 10).needs
    assert (need.title, need.subject) == ("The provider of small refuses its key", "small")
    break_down("bob", fault=KEY)
    send("cem")
    assert waiting() == []
    monkeypatch.setenv("SMALL_KEY", "another")
    assert waiting() == ["cem"], "another key"
    monkeypatch.setenv("SMALL_KEY", "k")
    assert waiting() == []
    path = CoreSettings.current().home / FILE
    path.write_text(path.read_text().replace(":9/v1", ":10/v1"))
    assert waiting() == ["cem"], "another address"


def test_a_reset_holds_against_runs_that_had_begun(small: None) -> None:
    for name in ("ann", "bob", "cem"):
        send(name)
    running = [take() for _ in range(3)]
    for turn in running[:2]:
        fail(turn)
    pool("pool_reset_outage", runner="small")
    fail(running[2])
    assert pool("pool_list_outages")["outages"] == [] and "cem" not in waiting(), "it waits for itself"
    with time_machine.travel(now() + timedelta(minutes=1)):
        for turn in [take(), take()]:
            fail(turn)
        assert [row["confirmed"] for row in pool("pool_list_outages")["outages"]] == [True]


def test_who_waits_for_an_answer_learns_at_once_that_the_provider_is_out(small: None) -> None:
    break_down("ann", "bob", fault=KEY)
    turn = asks("cem")
    assert waiting() == ["cem"]
    fail(take_of("cem"), KEY)
    turn.refresh_from_db()
    assert (turn.status, turn.put_back) == (TurnStatus.FAILED, 0)
    turn = asks("ann")
    assert waiting() == ["ann"], "before the one that was put back"
    assert turns.claim(turn.pk) is not None


def test_a_person_lets_runs_start_again(small: None, browser: Browser) -> None:
    browser.force_login(local_account())  # its runners start programs
    break_down("ann", "bob", fault=Fault(FaultKind.QUOTA, 3_600))
    assert "the provider is away" in shown(browser.get("/admin/control/outage/"))
    assert "pool_reset_outage small" in shown(browser.get("/admin/control/outage/small/change/"))
    assert "nothing is left of its quota" in shown(browser.get("/admin/attention/"))
    act(browser, do="pool_reset_outage small")
    assert waiting() == ["ann", "bob"] and not Turn.objects.exclude(due_at=None).exists()
    assert "the provider is away" not in shown(browser.get("/admin/control/outage/"))
    assert refused("pool_reset_outage", runner="small")["code"] == "NOT_FOUND"
    assert Event.objects.get(type="provider.reset").payload["runner"] == "small"


def test_a_run_that_changed_files_fails_but_its_provider_is_known_to_be_out(small: None) -> None:
    send("ann")
    send("bob")
    turn = take()
    say(turn, Role.ASSISTANT, "", meta={"tool_calls": [{"id": "1", "name": "write_file"}]})
    fail(turn)
    assert Turn.objects.get(pk=turn.pk).status == TurnStatus.FAILED
    fail(take_of("bob"))
    assert Outage.objects.get().is_confirmed


def test_the_command_lists_and_resets(committed: None, small: None) -> None:
    break_down("ann", fault=KEY)
    assert "the provider is away" in command("runners", "outages")
    command("runners", "reset", "small")
    assert pool("pool_list_outages")["outages"] == []


def with_fallback(more: str = "") -> None:
    path = CoreSettings.current().home / FILE
    text = path.read_text().replace("[runners.small]", '[runners.small]\nfallback = "b"')
    path.write_text(text.replace("[runners.b]", f"[runners.b]\n{more}"))


def test_the_fallback_takes_over_where_the_operator_allowed_it(small: None, browser: Browser) -> None:
    with_fallback()
    send("ann")
    fail(take(), KEY)
    turn = take()
    assert (turn.runner, turn.put_back) == ("b", 1), "its own turn goes there without a second agent"
    assert pool("pool_get_run", run_id=turn.pk)["runner"] == "b"
    browser.force_login(local_account())
    assert "the fallback of" in shown(browser.get(f"/admin/control/turn/{turn.pk}/change/"))
    assert pool("pool_list_outages")["outages"][0]["fallback"] == "b"
    fail(turn, KEY)
    assert waiting() == [], "it failed on both"
    send("bob")
    turn = take_of("bob")
    assert turn.runner is None, "one agent's word moves nobody else"
    fail(turn, KEY)
    send("cem")
    assert take_of("cem").runner == "b", "two agents' word does"
    pool("pool_reset_outage", runner="small")
    send("cem")
    assert take_of("ann").runner is None


def test_a_turn_that_somebody_waits_for_goes_to_the_fallback_at_once(small: None) -> None:
    with_fallback()
    turn = asks("ann")
    fail(take(), KEY)
    assert waiting() == ["ann"] and take().runner == "b"
    fail(Turn.objects.get(pk=turn.pk))
    assert Turn.objects.get(pk=turn.pk).status == TurnStatus.FAILED, "and no further"


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
        runners_file.read_runners(path)


def declare_out(turn: Turn) -> None:
    """Let agents of two families meet a fault of small."""
    for other in (turn, Turn(agent=PoolAgent.objects.get(agent_id="bob"), started_at=now())):
        outages.note_fault(runners_file.runners().named("small"), KEY, "away", other, now())


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
            with_fallback()
            declare_out(turn)
            send("ann", "second")
            turn = take()
            assert turn.runner == last
            say(turn, Role.ASSISTANT, "B", meta={"acp_session": "s2", "runner": last})
            settle(turn)
            if runner_name == "small":
                outages.reset("small", "ops")
        elif runner_name == "b":
            with_fallback()
            declare_out(turn)
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
async def test_a_worker_asks_a_provider_that_refuses_the_key_once_for_each_of_two_agents(
    configure: Callable[..., None], worker: Worker, tmp_path: Path
) -> None:
    configure(pool_turns=1)
    with serving(refuses(401, "bad key"), refuses(401, "bad key"), says("Done.")) as (server, url):
        sent = await runs_over(url, tmp_path)
        while not (outage := await out()).is_confirmed:
            await asyncio.sleep(0)
        assert outage.fault == "key"
        await in_thread(WRITERS, lambda: create("cem", cwd=str(tmp_path), runner="small"))
        sent.append(await asend("cem", "I am for cem."))
        for _ in range(3):
            await worker._claim()
        assert asked(server) == 2
        await in_thread(WRITERS, lambda: outages.reset("small", "ops"))
        assert [(await ended(turn_id)).answer for turn_id in sent] == ["Done."] * 3
        assert asked(server) == 5


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
    assert outage.fault == "unreachable"
