"""The worker: turns one at a time for each agent, ended when they are to end, and stored whatever the store does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from django.db import transaction

from nexus.control import selectors
from nexus.control.agents import machines, monitoring, transcript, turns, wake_kinds, waking
from nexus.control.agents.turns import Ended
from nexus.control.models import PoolAgent, Role, Turn, TurnStatus
from nexus.control.permissions.members import Actor
from nexus.control.permissions.prices import Cost
from nexus.control.rpc import agent_stream
from nexus.control.runners import contexts
from nexus.control.runners.base import RunnerFailed, Scene
from nexus.control.worker import execution as taking
from nexus.control.worker import scheduling
from nexus.control.worker.scheduling import POOL, Worker
from nexus.core.clock import now
from nexus.core.database.base import ExclusiveLock
from nexus.core.database.store import store, write
from nexus.core.operations.errors import Code, NexusError
from nexus.core.waiting import READERS, SLOW, WRITERS, in_thread
from tests.acceptance.hub import START_SECONDS
from tests.control.pool import (
    ADMIN,
    DONE,
    Take,
    acancel,
    acreate,
    asend,
    at_work,
    create,
    done,
    ended,
    said,
    send,
    stalls,
)
from tests.control.test_supervision import Cut
from tests.core.waiting import LONG
from tests.store import failing, plans

Plays = Callable[[Take], None]


def held(plays: Plays) -> tuple[asyncio.Queue[str], asyncio.Event]:
    """Let turns last until the event; the queue has the agent of each that begins."""
    begun, let_go = asyncio.Queue[str](), asyncio.Event()

    async def take(runner: Any, scene: Scene) -> Ended:
        begun.put_nowait(scene.agent.agent_id)
        await let_go.wait()
        return DONE

    plays(take)
    return begun, let_go


async def test_it_takes_one_turn_of_an_agent_at_a_time_and_several_of_others(worker: Worker, plays: Plays) -> None:
    at_it: Counter[str] = Counter()
    both = asyncio.Event()
    most = 0

    async def take(runner: Any, scene: Scene) -> Ended:
        nonlocal most
        at_it[scene.agent.agent_id] += 1
        most = max(most, at_it[scene.agent.agent_id])
        if len(+at_it) == 2:
            both.set()
        await both.wait()
        at_it[scene.agent.agent_id] -= 1
        return DONE

    plays(take)
    await acreate("ann", "bob")
    sent = [await asend(name) for name in ("ann", "ann", "ann", "bob")]
    assert [(await ended(turn)).status for turn in sent] == ["done"] * 4
    assert most == 1
    assert (await said("ann")) == ["go"] * 3


async def test_it_claims_a_turn_as_it_is_sent_in_its_own_process(worker: Worker, plays: Plays) -> None:
    begun, let_go = held(plays)

    def sent_and_looked_at() -> list[str]:
        return [Turn.objects.get(pk=send("ann").pk).status for _ in range(2)]

    await acreate("bob")
    first = await asend("bob")
    await begun.get()  # it is at work
    await acreate("ann")
    assert await in_thread(WRITERS, sent_and_looked_at) == ["running", "queued"], "the agent is at one by then"
    let_go.set()
    assert (await ended(first)).status == "done"


async def test_it_claims_a_turn_in_the_transaction_that_queues_it_and_lets_go_of_one_that_was_not_queued_after_all(
    worker: Worker, plays: Plays
) -> None:
    taken: list[str] = []

    async def take(runner: Any, scene: Scene) -> Ended:
        taken.append(scene.turn.content)
        return DONE

    def sent_in_vain() -> str:
        with write():
            status = Turn.objects.get(pk=send("ann", "in vain").pk).status
            transaction.set_rollback(True)
        return status

    plays(take)
    await acreate("ann", "bob")
    await ended(await asend("bob", "first"))  # it is at work
    assert await in_thread(WRITERS, sent_in_vain) == "running"
    assert (await ended(await asend("ann", "again"))).status == "done"
    assert taken == ["first", "again"]


@pytest.mark.sqlite  # where writers of several threads are sure to wait for each other
async def test_it_takes_no_more_turns_than_it_may_whoever_sends_from_wherever(worker: Worker, plays: Plays) -> None:
    at_it = most = 0

    async def take(runner: Any, scene: Scene) -> Ended:
        nonlocal at_it, most
        at_it += 1
        most = max(most, at_it)
        for _ in range(20):  # others come meanwhile
            await asyncio.sleep(0)
        at_it -= 1
        return DONE

    plays(take)
    names = [f"agent-{number}" for number in range(12)]
    await acreate(*names)
    sent = await asyncio.gather(
        *(in_thread((WRITERS, SLOW)[number % 2], partial(send, name)) for number, name in enumerate(names))
    )
    assert [(await ended(turn.pk)).status for turn in sent] == ["done"] * 12
    assert most <= 4


async def test_a_turn_that_waits_for_one_that_it_sent_keeps_no_place_from_it(
    committed: None, configure: Callable[..., None], plays: Plays
) -> None:
    configure(control=True, pool_turns=1, pool_stop_seconds=60)
    sends = {(None, "lead"): ["kid"], ("lead", "kid"): ["grandkid", "cousin"]}
    taken: list[tuple[str | None, str]] = []
    begun, queued = asyncio.Event(), asyncio.Event()

    async def take(runner: Any, scene: Scene) -> Ended:
        taken.append((scene.turn.source_agent_id, scene.agent.agent_id))
        begun.set()
        await queued.wait()
        for below in sends.get(taken[-1], ()):
            sent = {"agent_id": below, "content": "go", "timeout_seconds": LONG}
            assert (await scene.call("control", "pool_send", sent)).result()["content"] == "done"
        return DONE

    def family() -> None:
        create("lead")
        create("other")
        for name, parent in (("kid", "lead"), ("grandkid", "kid"), ("cousin", "kid")):
            create(name, parent_agent_id=parent)

    plays(take)
    await in_thread(WRITERS, family)
    async with at_work(Worker(now())):
        lead = await asend("lead")
        await begun.wait()
        waits = [await asend("other"), await asend("kid")]  # which stands before what lead sends there
        queued.set()
        assert [(await ended(turn)).status for turn in (lead, *waits)] == ["done"] * 3
        below = [(None, "kid"), ("lead", "kid"), ("kid", "grandkid"), ("kid", "cousin")]
        assert taken == [(None, "lead"), *below, (None, "other")]


async def test_what_a_turn_used_that_was_cut_off_is_counted(
    worker: Worker, plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = asyncio.Event()

    async def take(runner: Any, scene: Scene) -> Ended:
        scene.draft.used(700, 30)
        scene.draft.cost = Cost(410, "USD", "its agent")
        used.set()
        if scene.turn.content == "fail":
            raise ValueError("what nobody thought of")
        await asyncio.Event().wait()
        return DONE

    plays(take)
    await acreate("ann")
    stalled = await asend("ann")
    await used.wait()
    await acancel(stalled)
    for turn, status in ((await ended(stalled), "cancelled"), (await ended(await asend("ann", "fail")), "failed")):
        assert (turn.status, turn.input_tokens, turn.output_tokens) == (status, 700, 30)
        assert (turn.cost, turn.currency, turn.cost_source) == (410, "USD", "its agent")


async def test_the_turns_of_an_agent_leave_a_place_for_those_of_others_and_of_operators(
    worker: Worker, plays: Plays
) -> None:
    begun, let_go = held(plays)

    def send_as(name: str, *children: str) -> list[str]:
        lead = create(name)
        for agent_id in children:
            create(agent_id, parent_agent_id=name, preset="worker")
        return [send(agent_id, actor=Actor(name, lead)).pk for agent_id in children]

    await acreate("operators")
    sent = await in_thread(WRITERS, partial(send_as, "lead", "a", "b", "c", "d"))
    assert {await begun.get() for _ in range(2)} < {"a", "b", "c", "d"}
    sent += await in_thread(WRITERS, partial(send_as, "other", "e", "f"))
    assert await begun.get() == "e", "what one agent sent leaves a place to what others send"
    await asend("operators")
    assert await begun.get() == "operators"
    let_go.set()
    assert [(await ended(turn)).status for turn in sent] == ["done"] * 6


async def test_an_agent_gets_no_larger_share_of_the_turns_by_agents_below_it(worker: Worker, plays: Plays) -> None:
    begun, let_go = held(plays)

    def mail(sender: str, to: str) -> str:
        return turns.send(ADMIN, to, content="go", request_id=None, source="mail", source_agent_id=sender).pk

    def mail_of_children() -> list[str]:
        create("lead")
        for name in "abc":
            create(f"child-{name}", parent_agent_id="lead", preset="worker")
        return [mail(f"child-{name}", name) for name in "abc"]

    await acreate("a", "b", "c", "other")
    sent = await in_thread(WRITERS, mail_of_children)
    assert {await begun.get() for _ in range(2)} < {"a", "b", "c"}
    sent.append(await in_thread(WRITERS, partial(mail, "codex", "other")))
    assert await begun.get() == "other", "what a whole family sent leaves a place to what others send"
    let_go.set()
    assert [(await ended(turn)).status for turn in sent] == ["done"] * 4


async def test_what_is_sent_as_there_is_room_again_waits_behind_what_waited(
    committed: None, configure: Callable[..., None], plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(control=True, pool_turns=1, pool_stop_seconds=60)
    taken: list[str] = []
    begun, let_go = asyncio.Event(), asyncio.Event()
    settle = turns.settle_turn

    async def take(runner: Any, scene: Scene) -> Ended:
        taken.append(scene.agent.agent_id)
        begun.set()
        await let_go.wait()
        return DONE

    def settle_and_send(turn: Turn, ended: Ended) -> bool:
        monkeypatch.setattr(turns, "settle_turn", settle)
        settled = settle(turn, ended)
        send("late")
        return settled

    plays(take)
    await acreate("first", "waits", "late")
    async with at_work(Worker(now())):
        await asend("first")
        await begun.wait()
        waited = await asend("waits")
        monkeypatch.setattr(turns, "settle_turn", settle_and_send)
        let_go.set()
        assert (await ended(waited)).status == "done"
        late = await in_thread(READERS, lambda: Turn.objects.get(agent__agent_id="late"))
        assert (await ended(late.pk)).status == "done"
        assert taken == ["first", "waits", "late"]


async def test_a_turn_is_cancelled_that_was_claimed_and_has_not_begun(worker: Worker, plays: Plays) -> None:
    def send_and_cancel() -> str:
        turn = send("ann")
        turns.cancel(ADMIN, "ann", turn.request_id)
        return turn.pk

    plays(stalls(asyncio.Event()))
    await acreate("ann")
    assert (await ended(await in_thread(WRITERS, send_and_cancel))).status == "cancelled"
    assert await said("ann") in (["go"], []), "it may have been claimed before or not"


async def test_a_turn_is_cancelled_while_what_takes_it_is_imported(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def takes_long(name: str) -> ModuleType:
        loop.call_soon_threadsafe(begun.set)
        assert gate.wait(START_SECONDS)
        return import_module(name)

    monkeypatch.setattr(taking, "_modules", {})
    monkeypatch.setattr(taking, "import_module", takes_long)
    await acreate("ann")
    turn = await asend("ann")
    try:
        async with asyncio.timeout(START_SECONDS / 2):
            await begun.wait()
            await acancel(turn)
            assert (await ended(turn)).status == "cancelled"
    finally:
        gate.set()


async def test_a_cancelled_turn_ends_though_its_runner_goes_on(worker: Worker, plays: Plays) -> None:
    begun, let_go, late = asyncio.Event(), asyncio.Event(), []

    async def acts(scene: Scene) -> None:
        for act in (scene.say(Role.ASSISTANT, "late"), scene.call("coordination", "agent_list", {})):
            with pytest.raises(RunnerFailed):
                await act

    async def take(runner: Any, scene: Scene) -> Ended:
        if scene.turn.content != "stall":
            assert let_go.is_set(), "its agent takes no other turn before"
            return DONE
        begun.set()
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):  # as a library does that catches too much
                await let_go.wait()
        late.append(asyncio.create_task(acts(scene)))  # of its own: it is asked to end again and again
        return DONE

    plays(take)
    await acreate("ann")
    stalled, next_one = await asend("ann", "stall"), await asend("ann", "next")
    try:
        await begun.wait()
        await acancel(stalled)
        assert (await ended(stalled)).status == "cancelled"
    finally:
        let_go.set()
    assert (await ended(next_one)).status == "done"
    [acted] = late
    await acted
    assert (await said("ann")) == ["stall", "next"]
    assert (await in_thread(READERS, lambda: Turn.objects.get(pk=stalled))).status == "cancelled"


async def test_a_runner_that_never_lets_go_keeps_its_agent_for_a_while_only(
    worker: Worker, plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "STUBBORN_SECONDS", 0)
    begun, end_of_test = asyncio.Event(), asyncio.Event()

    async def take(runner: Any, scene: Scene) -> Ended:
        begun.set()
        while scene.turn.content == "stall" and not end_of_test.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end_of_test.wait()
        return DONE

    plays(take)
    await acreate("ann")
    stalled, next_one = await asend("ann", "stall"), await asend("ann", "next")
    try:
        await begun.wait()
        await acancel(stalled)
        assert (await ended(next_one)).status == "done"
    finally:
        end_of_test.set()


async def test_an_answer_that_came_as_it_was_cancelled_is_kept(worker: Worker, plays: Plays) -> None:
    begun = asyncio.Event()

    async def take(runner: Any, scene: Scene) -> Ended:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Ended(TurnStatus.DONE, "just done")
        return DONE

    plays(take)
    await acreate("ann")
    sent = await asend("ann")
    await begun.wait()
    await acancel(sent)
    turn = await ended(sent)
    assert (turn.status, turn.answer) == ("done", "just done")


async def test_a_runner_follows_the_transcript_from_its_message_back_as_far_as_it_wants(
    worker: Worker, plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript, "PAGE", 2)
    known: list[str] = []

    async def take(runner: Any, scene: Scene) -> Ended:
        await scene.say(Role.ASSISTANT, "what is said meanwhile is none of it")
        known.extend([entry.content async for entry in scene.history()])
        return DONE

    def talk() -> None:
        with write():
            ann = PoolAgent.objects.get(agent_id="ann")
            for number in range(4):
                transcript.append(ann, None, Role.USER, str(number), moment=now())

    plays(take)
    await acreate("ann")
    await in_thread(WRITERS, talk)
    assert (await ended(await asend("ann"))).status == "done"
    assert known == ["go", "3", "2", "1", "0"]


async def test_a_turn_that_takes_too_long_fails(worker: Worker, plays: Plays, monkeypatch: pytest.MonkeyPatch) -> None:
    from nexus.control.runners_file import Rehearsal, Runners

    short = Rehearsal.model_construct(kind="rehearsal", name="rehearsal", turn_seconds=0)
    monkeypatch.setattr(taking, "runners", lambda: Runners({"rehearsal": short}, "rehearsal"))

    plays(stalls(asyncio.Event()))
    await acreate("ann")
    turn = await ended(await asend("ann"))
    assert (turn.status, turn.why) == ("failed", "it took longer than the runner's turn_seconds")


@pytest.mark.parametrize("kind", ["busy", "full", "away"])
async def test_an_end_is_stored_once_the_store_takes_it(
    worker: Worker, plays: Plays, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    settle, tries = turns.settle_turn, 0

    def refused_at_first(turn: Turn, ended: Ended) -> bool:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise failing(kind)
        return settle(turn, ended)

    monkeypatch.setattr(turns, "settle_turn", refused_at_first)
    plays(done)
    await acreate("ann")
    turn = await ended(await asend("ann"))
    assert (turn.status, turn.answer, tries) == ("done", "done", 4)


@pytest.mark.parametrize("pool", [WRITERS, SLOW], ids=["by who sends it", "by the worker"])
async def test_a_turn_whose_beginning_may_be_stored_or_not_holds_its_agent_up_no_longer(
    worker: Worker, plays: Plays, monkeypatch: pytest.MonkeyPatch, pool: Any
) -> None:
    def in_doubt(*_: Any) -> None:
        monkeypatch.undo()
        plays(done)
        raise NexusError(Code.DB_ERROR, "The connection was lost as it was committed.", {"cause": "commit_in_doubt"})

    def sent() -> str:
        with contextlib.suppress(NexusError):
            send("ann")
        return Turn.objects.get().pk

    plays(done)
    await acreate("ann")
    monkeypatch.setattr(worker, "_claimed", in_doubt)  # it comes with the commit
    assert (await ended(await in_thread(pool, sent))).status == "interrupted"
    assert (await ended(await asend("ann", "next"))).status == "done"


async def test_a_turn_whose_end_could_not_be_stored_holds_its_agent_up_no_longer(
    worker: Worker, plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "STORE_SECONDS", 0)
    settle = turns.settle_turn

    def refused_once(turn: Turn, ended: Ended) -> bool:
        monkeypatch.setattr(turns, "settle_turn", settle)
        raise failing("away")

    monkeypatch.setattr(turns, "settle_turn", refused_once)
    plays(done)
    await acreate("ann")
    unstored, next_one = await asend("ann"), await asend("ann", "next")
    assert (await ended(unstored)).status == "interrupted"
    assert (await ended(next_one)).status == "done"


async def test_what_is_said_is_stored_once_the_store_is_free(
    worker: Worker, plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, tries = transcript.append, 0

    def refused_at_first(*arguments: Any, **more: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise failing("busy")
        return append(*arguments, **more)

    async def take(runner: Any, scene: Scene) -> Ended:
        monkeypatch.setattr(transcript, "append", refused_at_first)
        await scene.say(Role.ASSISTANT, "hello")
        return DONE

    plays(take)
    await acreate("ann")
    assert (await ended(await asend("ann"))).status == "done"
    assert await said("ann") == ["go", "hello"]


async def test_its_end_interrupts_what_is_not_done_and_keeps_what_waits(
    committed: None, configure: Callable[..., None], plays: Plays
) -> None:
    configure(control=True, pool_turns=1)
    begun = asyncio.Event()

    plays(stalls(begun))
    await acreate("ann", "bob", ".temp")
    started = await in_thread(READERS, lambda: PoolAgent.objects.get(agent_id="ann").created_at)
    async with at_work(Worker(started), at_once=True):
        running = await asend("ann")
        await begun.wait()
        waiting = await asend("bob")
    assert (await ended(running)).status == "interrupted"
    assert (await in_thread(READERS, lambda: Turn.objects.get(pk=waiting))).status == "queued"
    living = await in_thread(READERS, lambda: set(PoolAgent.objects.living().values_list("agent_id", flat=True)))
    assert living == {"ann", "bob"}, "temporary agents end with the server"


async def test_its_end_waits_for_a_turn_that_it_is_just_claiming(
    committed: None, configure: Callable[..., None], plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(control=True, pool_stop_seconds=60)
    loop, claim, claimed = asyncio.get_running_loop(), turns.claim, asyncio.Event()

    def claim_and_pause(*given: Any, **more: Any) -> Turn | None:
        turn = claim(*given, **more)
        loop.call_soon_threadsafe(claimed.set)
        assert ending.wait(START_SECONDS)
        return turn

    class Ending(Worker):
        async def _end(self) -> None:
            loop.call_later(0, ending.set)
            await super()._end()

    ending = threading.Event()
    plays(done)
    await acreate("ann")
    sent = await asend("ann")
    monkeypatch.setattr(turns, "claim", claim_and_pause)
    task = asyncio.create_task((worker := Ending(now())).work())
    await claimed.wait()
    worker.stop()
    await task
    turn = await ended(sent)
    assert (turn.status, turn.why) == ("done", None)


async def test_the_next_one_tells_what_a_killed_one_left(
    committed: None, configure: Callable[..., None], plays: Plays
) -> None:
    configure(control=True)

    plays(done)
    await acreate("ann", "bob", ".before")
    left, asked = await asend("ann"), await asend("bob")
    for turn_id in (left, asked):
        await in_thread(WRITERS, lambda turn_id=turn_id: turns.claim(turn_id))  # type: ignore[misc]
    await acancel(asked)
    started = now()
    await acreate(".after")
    async with at_work(Worker(started)):
        assert (await ended(left)).status == "interrupted"
        assert (await ended(asked)).status == "cancelled", "as it was asked"
        assert (await ended(await asend("ann", "again"))).status == "done"
        living = await in_thread(READERS, lambda: set(PoolAgent.objects.living().values_list("agent_id", flat=True)))
        assert living == {"ann", "bob", ".after"}


async def test_one_that_may_not_be_alone_ends_with_its_own_turns_and_leaves_all_else_to_the_next(
    committed: None, configure: Callable[..., None], plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(control=True, pool_turns=1)
    begun = asyncio.Event()
    exclusive_lock, taken = store().exclusive_lock, cuts(monkeypatch)

    plays(stalls(begun))
    started = now()
    await acreate("ann", "bob", ".temp")
    task = asyncio.create_task(Worker(started).work())
    own = await asend("ann")
    await begun.wait()
    another = await asend("bob")
    await in_thread(WRITERS, lambda: turns.claim(another))  # as the next one may, before this one knows
    others: list[ExclusiveLock | None] = []
    taken[0].between = lambda: others.append(exclusive_lock(POOL))
    taken[0].is_held = False
    await task
    assert others[0] is not None
    await asyncio.to_thread(others[0].release)
    assert (await ended(own)).status == "interrupted"
    assert (await in_thread(READERS, lambda: Turn.objects.get(pk=another))).status == "running"
    living = await in_thread(READERS, lambda: set(PoolAgent.objects.living().values_list("agent_id", flat=True)))
    assert living == {"ann", "bob", ".temp"}


async def test_one_that_lost_its_lock_alone_goes_on_with_its_turns(
    committed: None, configure: Callable[..., None], plays: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(control=True, pool_turns=1)
    begun, may_end, taken = asyncio.Event(), asyncio.Event(), cuts(monkeypatch)

    async def take(runner: Any, scene: Scene) -> Ended:
        begun.set()
        await may_end.wait()
        return DONE

    plays(take)
    await acreate("ann", "bob")
    async with at_work(Worker(now())):
        own = await asend("ann")
        await begun.wait()
        another = await asend("bob")
        await in_thread(WRITERS, lambda: turns.claim(another))  # by one that came meanwhile, and went
        taken[0].is_held = False
        assert (await ended(another)).status == "interrupted", "nobody is at it"
        assert len(taken) == 2 and taken[1].is_held
        may_end.set()
        assert (await ended(own)).status == "done"
        assert (await ended(await asend("bob"))).status == "done"


def cuts(monkeypatch: pytest.MonkeyPatch) -> list[Cut]:
    """The locks that are taken from here on; each can be lost."""
    exclusive_lock, taken = store().exclusive_lock, list[Cut]()

    def cut(kind: str) -> ExclusiveLock | None:
        if holder := exclusive_lock(kind):
            taken.append(holder := Cut(holder))
        return holder

    monkeypatch.setattr(store(), "exclusive_lock", cut)
    return taken


async def test_a_store_has_one_at_a_time_and_the_other_takes_over(
    committed: None, configure: Callable[..., None], plays: Plays, caplog: pytest.LogCaptureFixture
) -> None:
    configure(control=True)

    plays(done)
    await acreate("ann")
    first = await in_thread(READERS, lambda: store().exclusive_lock(POOL))
    assert first is not None
    async with at_work(Worker(now())):
        sent = await asend("ann")
        while "Another worker is at this store's pool" not in caplog.text:
            await asyncio.sleep(0)
        assert (await in_thread(READERS, lambda: Turn.objects.get(pk=sent))).status == "queued"
        await asyncio.to_thread(first.release)
        assert (await ended(sent)).status == "done"


async def test_one_that_stands_by_ends_when_it_is_told(committed: None, configure: Callable[..., None]) -> None:
    configure(control=True)
    first = await in_thread(READERS, lambda: store().exclusive_lock(POOL))
    assert first is not None
    worker = Worker(now())
    task = asyncio.create_task(worker.work())
    worker.stop()
    await task
    await asyncio.to_thread(first.release)


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_it_finds_what_waits_without_a_look_at_what_has_ended(db: None, configure: Callable[..., None]) -> None:
    configure(control=True)
    create("ann")
    send("ann")
    looks = [look for look in plans(looked_for) if "pool_turns" in look]
    assert len(looks) == 3
    assert all(any(index in look for index in OPEN) for look in looks), looks


def looked_for() -> None:
    """What a worker looks for again and again."""
    turns.queued_turns()
    turns.sent_by_agents()
    waking.callable_by(())


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite
def test_what_is_looked_at_again_and_again_reads_no_long_history(db: None, configure: Callable[..., None]) -> None:
    configure(control=True)
    agent = create("ann")

    def look() -> None:
        agent_stream.state_of(agent)
        wake_kinds.limit_reached(agent, 1, now())
        wake_kinds.depth_after("ann", now(), None)
        monitoring.members([agent])
        monitoring.spent(agent)
        selectors.current_request("ann")
        contexts.tokens(agent)
        contexts.context(agent)

    looks = [plan for plan in plans(look) if "pool_turns" in plan or "pool_entries" in plan]
    assert len(looks) == 15
    assert all(any(index in plan for index in (*OPEN, *BRIEF)) for plan in looks), looks


OPEN = ("pool_turns_open", "pool_turns_spent (agent_id=? AND ended_at=?)")
BRIEF = ("pool_turns_one_at_a_time", "pool_turns_spent", "pool_entries_known (agent_id=? AND compacted_at=?)")


async def test_what_fails_beside_the_turns_is_logged_once_and_tried_again(
    committed: None, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries, done = [], asyncio.Event()
    loop = asyncio.get_running_loop()

    def failing(*_: Any) -> None:
        tries.append(1)
        if len(tries) == 6:
            loop.call_soon_threadsafe(done.set)
        if len(tries) < 6:
            raise ValueError("made by the test")

    monkeypatch.setattr(machines.LostMachines, "look", failing)
    monkeypatch.setattr(machines, "BEAT_SECONDS", 0.01)
    configure(control=True)
    async with at_work(Worker(now())), asyncio.timeout(LONG):
        await done.wait()
    assert caplog.text.count("Traceback") == 1
    assert "looking for lost machines failed (made by the test); it is tried again." in caplog.text
