"""Machines: each runs its own agents' turns, one worker at a time, and what an earlier worker does counts no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.db.models import F
from django.test import Client as Browser

from coordination.models import Event
from nexus.control.agents import machines, turns
from nexus.control.agents.turns import Ended
from nexus.control.faults import Fault, FaultKind
from nexus.control.models import HUB, Incarnation, Machine, MachineState, PoolAgent, Role, Turn, TurnStatus
from nexus.control.runners.base import RunnerFailed, Scene
from nexus.control.runners_file import FILE
from nexus.control.worker.execution import RunningTurn
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import WRITERS, in_thread
from tests.control.playing import pool, refused
from tests.control.pool import DONE, Take, asend, create, ended, send
from tests.pages import shown

Plays = Callable[[Take], None]


def begin(name: str, **more: Any) -> Incarnation:
    """A machine that has just begun."""
    return machines.begin_incarnation(name, **{"runners": ["rehearsal"], "capacity": 2, **more})


def age(name: str, seconds: float = 60) -> None:
    """Let a machine have been silent for so long."""
    Machine.objects.filter(pk=name).update(beat_at=F("beat_at") - timedelta(seconds=seconds))


def lose(name: str) -> None:
    """Lose a machine."""
    age(name)
    assert machines.lose(Machine.objects.get(pk=name))


def there(agent_id: str, machine: str) -> PoolAgent:
    """An agent of a machine."""
    agent = create(agent_id)
    PoolAgent.objects.filter(pk=agent.pk).update(machine=machine)
    return agent


def test_a_run_is_claimed_by_the_machine_of_its_agent_alone(committed: None, configure: Callable[..., None]) -> None:
    configure(control=True)
    one, two = begin("one"), begin("two")
    there("ann", "one")
    turn = send("ann")
    assert [len(turns.queued_turns(machine=name)) for name in (HUB, "one", "two")] == [0, 1, 0]
    assert turns.claim(turn.pk, own=two) is None
    claimed = turns.claim(turn.pk, own=one)
    assert claimed is not None
    assert claimed.epoch == one.epoch
    assert turns.claim(turn.pk, own=one) is None, "it was claimed"


def test_a_worker_claims_nothing_after_another_took_its_name_or_it_counts_as_lost(
    committed: None, configure: Callable[..., None]
) -> None:
    configure(control=True)
    stalled = begin("one")
    there("ann", "one")
    turn = send("ann")
    age("one")
    successor = begin("one")
    assert turns.claim(turn.pk, own=stalled) is None
    lose("one")
    assert turns.claim(turn.pk, own=successor) is None
    assert turns.claim(turn.pk, own=begin("one")) is not None


def test_a_stalled_worker_ends_no_run_that_its_successor_has_started_again(
    committed: None, configure: Callable[..., None]
) -> None:
    configure(control=True)
    stalled = begin("one")
    there("ann", "one")
    sent = send("ann")
    before = turns.claim(sent.pk, own=stalled)
    assert before is not None
    outage = Ended(TurnStatus.FAILED, why="overloaded", fault=Fault(FaultKind.OVERLOADED))
    assert turns.settle_turn(before, outage)  # it is queued again, and the worker does not learn that this was stored
    Turn.objects.filter(pk=sent.pk).update(due_at=None)
    age("one")
    successor = begin("one")
    again = turns.claim(sent.pk, ways={}, own=successor, stored=Turn.objects.select_related("agent").get(pk=sent.pk))
    assert again is not None
    assert not turns.settle_turn(before, DONE), "it tries once more as it wakes up"
    turns.interrupt("it ends", stalled)
    assert Turn.objects.get(pk=sent.pk).status == TurnStatus.RUNNING
    assert turns.settle_turn(again, DONE)


async def test_a_runner_of_a_lost_machine_can_neither_say_nor_call_anything(
    committed: None, configure: Callable[..., None], plays: Plays
) -> None:
    configure(control=True)
    begun, wake, refused = asyncio.Event(), asyncio.Event(), list[str]()

    async def take(runner: Any, scene: Scene) -> Ended:
        begun.set()
        await wake.wait()
        calls = (partial(scene.say, Role.ASSISTANT, "late"), partial(scene.call, "control", "pool_list_agents", {}))
        for call in calls:
            try:
                await call()
            except RunnerFailed as error:
                refused.append(str(error))
        return DONE

    def claimed() -> Turn:
        own = begin("one")
        there("ann", "one")
        turn = turns.claim(send("ann").pk, own=own)
        assert turn is not None
        return turn

    plays(take)
    turn_run = RunningTurn(turn := await in_thread(WRITERS, claimed))
    running = asyncio.create_task(turn_run.run())
    await begun.wait()
    await in_thread(WRITERS, partial(lose, "one"))
    wake.set()
    end = await running
    assert refused == ["the turn has ended"] * 2
    assert not await in_thread(WRITERS, partial(turns.settle_turn, turn, end))
    await turn_run.gone()
    lost = await in_thread(WRITERS, lambda: Turn.objects.get(pk=turn.pk))
    assert (lost.outcome, lost.why) == ("lost", "its machine, one, was lost")
    assert lost.needs_person_since is not None


async def test_two_workers_take_the_turns_of_their_machines_and_a_superseded_one_ends(
    committed: None, configure: Callable[..., None], plays: Plays
) -> None:
    configure(control=True, pool_stop_seconds=60)
    taken: list[tuple[str, str]] = []

    async def take(runner: Any, scene: Scene) -> Ended:
        taken.append((scene.agent.machine, scene.agent.agent_id))
        return DONE

    def made() -> list[Incarnation]:
        there("ann", "one")
        there("bob", "two")
        return [begin("one"), begin("two")]

    plays(take)
    first, second = [
        (worker := Worker(now(), own=own, capacity=2), asyncio.create_task(worker.work()))
        for own in await in_thread(WRITERS, made)
    ]
    for name in ("ann", "bob"):
        assert (await ended(await asend(name))).status == "done"
    await in_thread(WRITERS, partial(lose, "one"))
    await first[1]
    second[0].stop()
    await second[1]
    assert sorted(taken) == [("one", "ann"), ("two", "bob")]


def test_a_second_worker_of_a_name_is_refused_while_the_first_lives(committed: None) -> None:
    first = begin("one", labels=["gpu"])
    Machine.objects.update(pid=1)  # another process
    with pytest.raises(NexusError, match=r"A worker called 'one' works already: process \d+ on ") as refused:
        begin("one")
    assert refused.value.code == "CONFIG_ERROR"
    assert machines.beat(first, runners=["rehearsal"])
    second = begin("one", own=first)  # its own worker is started again
    assert second.epoch == first.epoch + 1
    assert not machines.beat(first, runners=["rehearsal"])
    machines.end(first)
    assert Machine.objects.get(pk="one").state == MachineState.WORKING, "that is another's"
    machines.end(second)
    assert Machine.objects.get(pk="one").state == MachineState.ENDED
    assert begin("one").epoch == second.epoch + 1, "at once"


def test_a_machine_is_lost_after_several_silent_looks_in_a_row(committed: None, configure: Callable[..., None]) -> None:
    configure(control=True)
    own = begin("one")
    machines.begin_incarnation(HUB, runners=(), capacity=4)
    there("ann", "one")
    turn = turns.claim(send("ann").pk, own=own)
    assert turn is not None
    lost = machines.LostMachines(looks=3)
    age("one")
    age(HUB)
    lost.look()
    lost.look()
    lost._looked -= 60  # the database was away: nobody could beat
    for _ in range(2):
        lost.look()
    assert Machine.objects.get(pk="one").state == MachineState.WORKING
    machines.beat(own, runners=())
    lost.look()
    age("one")
    for _ in range(3):
        assert Machine.objects.get(pk="one").state == MachineState.WORKING
        lost.look()
    assert Machine.objects.get(pk="one").state == MachineState.LOST
    assert Machine.objects.get(pk=HUB).state == MachineState.WORKING, "its lock says that it lives"
    assert not machines.beat(own, runners=())
    assert Turn.objects.get(pk=turn.pk).status == TurnStatus.INTERRUPTED
    lost.look()
    assert Event.objects.filter(type="machine.lost").count() == 1


def test_the_clock_of_a_worker_says_nothing_of_its_life(
    committed: None, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for hours in (-1, 1):
        monkeypatch.setattr(machines, "now", lambda hours=hours: now() + timedelta(hours=hours))
        own = begin(f"machine-{hours}")
        assert machines.beat(own, runners=())
        assert Machine.objects.fresh().filter(pk=own.machine).exists()
        assert not Machine.objects.silent().exists()


RUNNERS = """
default = "rehearsal"
[runners.farm]
kind = "rehearsal"
labels = ["linux"]
"""


@pytest.fixture
def farm(committed: None, configure: Callable[..., None], tmp_path: Path) -> None:
    """A pool with a runner that needs a label."""
    home = tmp_path / "home"
    home.mkdir()
    configure(control=True, home=home)
    (home / FILE).write_text(RUNNERS)


@pytest.fixture
def later(farm: None) -> Iterator[None]:
    """Some seconds after the runners file was written: what begins within a tick of its time counts as older, and a
    connection from this machine then needs a login."""
    with time_machine.travel(now() + timedelta(seconds=10)):
        yield


def created(**more: Any) -> PoolAgent:
    """An agent that an operator creates with the runner that needs a label."""
    pool("pool_create_agent", **{"agent_id": "ann", "model": "farm", "cwd": "/srv/not/here", **more})
    return PoolAgent.objects.living().get(agent_id=more.get("agent_id", "ann"))


@pytest.mark.usefixtures("farm")
def test_an_agent_gets_a_machine_that_works_and_has_its_runners_labels() -> None:
    runners = ["farm", "rehearsal"]
    assert "start one with `nexus run-pool --labels`" in refused("pool_create_agent", model="farm", cwd="/")["message"]
    begin("bare", runners=runners)
    begin("other", labels=["linux"])
    begin("lost", labels=["linux"], runners=runners)
    lose("lost")
    error = refused("pool_create_agent", model="farm", cwd="/")
    assert error["code"] == "NO_MACHINE"
    whys = "bare lacks linux; the runners.toml of other has no runner farm"
    assert error["message"] == f"The runner farm needs a machine with the labels linux: {whys}."
    assert error["details"] == {"labels": ["linux"]}
    begin("large", labels=["linux", "gpu"], runners=runners, capacity=3)
    begin("small", labels=["linux"], runners=runners, capacity=1)
    names = [created(agent_id=f"agent-{number}").machine for number in range(5)]
    assert sorted(names) == ["large"] * 4 + ["small"]
    pool("pool_create_agent", agent_id="here", cwd="/")
    assert PoolAgent.objects.get(agent_id="here").machine == HUB


@pytest.mark.usefixtures("farm")
def test_agents_stay_with_their_parents_machine_and_have_no_worktrees_and_no_paths_of_the_hub(tmp_path: Path) -> None:
    own = begin("one", labels=["linux"], runners=["farm"])
    linked = tmp_path / "link"
    linked.symlink_to("/")
    parent = created(cwd=f"{linked}/../link/x", preset="trusted", allowed_write_paths=["out/../in"])
    assert (parent.cwd, parent.write_paths) == (f"{linked}/x", [f"{linked}/x/in"]), "it is read there"
    assert created(agent_id="kid", cwd=None, parent_agent_id="ann").machine == "one"
    for given, code in (
        ({"model": "rehearsal", "parent_agent_id": "ann"}, "NO_MACHINE"),  # which is not there
        ({"model": "farm", "worktree": True, "cwd": "/"}, "WORKTREE_REFUSED"),
        ({"model": "farm", "cwd": "x"}, "VALIDATION_ERROR"),
        ({"model": "farm"}, "VALIDATION_ERROR"),
    ):
        assert refused("pool_create_agent", **given)["code"] == code
    assert "below a [clones] entry" in refused("pool_create_agent", model="farm", worktree=True, cwd="/")["message"]
    machines.end(own)
    assert "one is ended" in refused("pool_create_agent", model="farm", parent_agent_id="ann")["message"]


@pytest.mark.usefixtures("farm")
async def test_a_machine_refuses_a_directory_that_is_not_there_or_a_link(tmp_path: Path) -> None:
    linked = tmp_path / "link"
    linked.symlink_to(tmp_path)

    def claimed(cwd: Path, name: str) -> Turn:
        created(agent_id=name, cwd=str(cwd))
        turn = turns.claim(send(name).pk, own=own)
        assert turn is not None
        return turn

    own = await in_thread(WRITERS, lambda: begin("one", labels=["linux"], runners=["farm"]))
    whys = []
    for number, cwd in enumerate((tmp_path / "gone", linked)):
        turn_run = RunningTurn(await in_thread(WRITERS, partial(claimed, cwd, f"agent-{number}")))
        whys.append((await turn_run.run()).why)
        await turn_run.gone()
    assert whys == [
        f"the agent's directory, {tmp_path}/gone, is not on this machine, one",
        f"on this machine {linked} is {tmp_path}: create the agent with that path",
    ]


@pytest.mark.usefixtures("later")
def test_operators_list_machines_on_every_transport(browser: Browser) -> None:
    machines.begin_incarnation(HUB, runners=["farm"], capacity=4)
    own = begin("one", labels=["linux"], runners=["farm"])
    created()
    turn = turns.claim(send("ann", "<b>go</b>").pk, own=own)
    assert turn is not None
    send("ann", "later")
    first, row = pool("pool_list_machines")["machines"]
    assert (first["machine"], first["state"], first["agents"]) == (HUB, "working", 0)
    assert (row["machine"], row["state"], row["labels"]) == ("one", "working", ["linux"])
    assert [row[name] for name in ("capacity", "running", "waiting", "agents")] == [2, 1, 1, 1]
    page = shown(browser.get("/admin/control/machine/"))
    assert "1 of 2" in page and "0 of 4" in page
    page = shown(browser.get("/admin/control/machine/one/change/"))
    assert f'href="/admin/control/turn/{turn.pk}/change/"' in page and "linux" in page
    assert "waits for the machine" not in shown(browser.get("/admin/attention/"))
    lose("one")
    assert "2 runs wait" not in (needs := shown(browser.get("/admin/attention/")))
    assert "1 run waits for the machine one, which is lost" in needs
