"""The worker: one process runs the turns of a machine's agents, so that no turn can stall the hub. It starts them in
turn: round robin among the families that sent them (an agent and all below it), and for each among the agents that it
sent to."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any, TypeVar

from django.db import DatabaseError, transaction

from coordination.models import Event
from nexus.control import maintenance
from nexus.control.agents import machines, outages, pool, turns
from nexus.control.agents.waking import WakeWatch
from nexus.control.config import ControlSettings
from nexus.control.models import HUB, Incarnation, Turn
from nexus.control.permissions.rules import reserve
from nexus.control.runners_file import runners
from nexus.control.worker.execution import Report, RunningTurn, to_nobody
from nexus.control.worker.store_access import ExclusiveRole, await_exclusive_role, stored
from nexus.core.background_work import Failures
from nexus.core.clock import now
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import READERS, SLOW, WRITERS, Parked, in_thread, waiter


@dataclass(frozen=True)
class QueuedTurn:
    """The oldest queued turn of an agent."""

    turn_id: str  # ids sort by age
    agent: str
    family: str | None  # that sent it, by the name of its topmost agent; None stands for operators


MOST = 10_000  # remembered families and agents, the last served


class Fairness:
    """Memory of who was served, so that nobody with many turns keeps others waiting. One per worker."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str | None], int] = {}
        self._clock = count(1)

    def first(self, waiting: Iterable[QueuedTurn], running: Collection[str | None]) -> QueuedTurn | None:
        """Return the turn to start next; `running` names the family that sent each running turn.

        It is of the family with the fewest running turns, then of the one served longest ago; among its turns, of the
        agent served longest ago, then the oldest turn.
        """
        taken = list(running)
        return min(
            waiting,
            key=lambda turn: (
                taken.count(turn.family),
                self._served.get(("family", turn.family), 0),
                self._served.get(("agent", turn.agent), 0),
                turn.turn_id,
            ),
            default=None,
        )

    def serve(self, turn: QueuedTurn) -> None:
        """Record that a turn is started."""
        for served in (("family", turn.family), ("agent", turn.agent)):
            self._served.pop(served, None)  # so that the latest is last
            self._served[served] = next(self._clock)
        while len(self._served) > MOST:
            del self._served[next(iter(self._served))]


log = logging.getLogger(__name__)
T = TypeVar("T")

POOL = "pool"  # the lock's kind: a store has one worker of the hub at a time
QUEUED, CANCEL_ASKED = "turn.queued", "turn.cancel_asked"
TIDY_SECONDS = 3600.0  # between two runs of housekeeping
LOOK_SECONDS = 1.0  # between two looks when no event came
STORE_SECONDS = 600.0  # retries of a turn's end that cannot be stored
END_SECONDS = 2.0  # for cancelled turns to stop, and for their end to be stored
BEAT_SECONDS = 60.0  # of the hub's worker, which is known to live by its lock
ENDED = "the server ended"
UNSTORED = "its beginning or its end could not be stored"


class Worker:
    """The running turns of a machine's agents. `since` is when its server started: temporary agents from before are
    ended.

    `report` sends drafts to the hub. `own` is the incarnation that its own process has begun, and `capacity` its turns
    at once; without it, this is the hub's worker, which also looks after the pool as a whole.
    """

    def __init__(
        self, since: datetime, report: Report = to_nobody, own: Incarnation | None = None, capacity: int | None = None
    ) -> None:
        self.since, self.report = since, report
        self.own, self.is_hub = own or Incarnation(HUB, 0), own is None
        self.capacity = capacity  # None: the setting's
        self.running: dict[str, RunningTurn] = {}  # by turn_id; the event loop and the claiming thread use it
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked: set[str] = set()  # turns whose end was requested
        self._unsure: set[str] = set()  # turns that may be stored as running, and are not
        self._lost = False  # another worker may be at the store
        self._fairness = Fairness()
        self._may_wait = True  # turns may be queued
        self._claims: Parked | None = None
        self._stopping, self._patient = asyncio.Event(), True
        self._hub_ended: datetime | None = None
        self._failures = Failures(log)

    def stop(self, at_once: bool = False) -> None:
        """Start no more turns; running ones get `pool_stop_seconds`, or no time at all."""
        self._patient = self._patient and not at_once
        self._hub_ended = self._hub_ended or now()
        self._stopping.set()

    async def work(self) -> None:
        """Run turns until `stop`, or until another worker may have taken over."""
        only = None
        if self.is_hub:
            waiting = await_exclusive_role(
                POOL, "Another worker is at this store's pool; this one waits until that has ended."
            )
            only = await self._unless_stopped(waiting)
            if only is None:
                return
        try:
            await stored(self._begin, math.inf, twice=True)
            self._loop = asyncio.get_running_loop()
            turns.queued.connect(self._queued_here)
            tidying = (
                partial(in_thread, SLOW, maintenance.clear),
                partial(in_thread, SLOW, partial(maintenance.compact_full, self.own.machine)),
            )
            works = [
                self._again_and_again(self._claim, self._is_queued),
                self._again_and_again(self._cancel, lambda event: event.type == CANCEL_ASKED),
                self._now_and_then("tidying up the pool", TIDY_SECONDS, *tidying),
            ]
            if only is not None:
                look_for_lost = partial(in_thread, READERS, machines.LostMachines().look)
                works += [
                    self._stay_alone(only),
                    self._now_and_then("beating", BEAT_SECONDS, partial(in_thread, READERS, self._beat)),
                    self._now_and_then("looking for lost machines", machines.BEAT_SECONDS, look_for_lost),
                    WakeWatch().work(),
                ]
            loops = [asyncio.create_task(work) for work in works]
            await self._stopping.wait()
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self._end()
        finally:
            turns.queued.disconnect(self._queued_here)
            if only is not None:
                await asyncio.to_thread(only.exclusive_lock.release)

    async def _unless_stopped(self, awaited: Awaitable[T]) -> T | None:
        task, stopping = asyncio.ensure_future(awaited), asyncio.create_task(self._stopping.wait())
        await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if task.done():
            return task.result()
        task.cancel()
        return None

    def _begin(self) -> None:
        self._claimer = threading.get_ident()  # one thread claims, so it knows all claims
        if self.is_hub:
            self._begin_hub()
            pool.end_temporary(self.since)

    def _begin_hub(self, but: Collection[str] = ()) -> None:
        """Begin the next incarnation of the hub's worker, which has the lock."""
        capacity = ControlSettings.current().pool_turns
        self.own = machines.begin_incarnation(HUB, runners=runners().by_name, capacity=capacity, but=but)

    def _beat(self) -> None:
        machines.beat(self.own, runners=runners().by_name)

    async def _again_and_again(self, look: Callable[[], Awaitable[None]], is_news: Callable[[Event], bool]) -> None:
        """Call `look` when there is news, and at intervals."""
        while True:
            try:
                async with waiter().park(is_news) as parked:  # park first, so that no event is missed
                    if look == self._claim:
                        self._claims = parked
                    while True:
                        await look()
                        self._failures.succeeded(look, "the pool is looked after")
                        await parked.wait(LOOK_SECONDS)
            except Exception as error:
                self._failures.failed(look, "the pool could not be looked after", error)
                await asyncio.sleep(LOOK_SECONDS)

    async def _stay_alone(self, only: ExclusiveRole) -> None:
        """End this worker when another one is at the store. If the other has ended again, interrupt what it left."""
        while await only.retaken():
            await stored(self._end_others, math.inf, twice=True)
        self._lost = True
        self.stop(at_once=True)

    def _end_others(self) -> None:
        """Interrupt running turns of other workers. Call it on the claiming thread: turns that are running by then, and
        not here, have no worker."""
        self._begin_hub(but=list(self.running))

    async def _now_and_then(self, what: str, seconds: float, *steps: Callable[[], Awaitable[object]]) -> None:
        """Run the steps every `seconds`; a failing step ends neither the others nor the loop."""
        while True:
            for number, step in enumerate(steps):
                try:
                    await step()
                    self._failures.succeeded((what, number), what)
                except Exception as error:
                    self._failures.failed((what, number), f"{what} failed", error)
            await asyncio.sleep(seconds)

    async def _claim(self) -> None:
        while await in_thread(WRITERS, self._claim_next):
            pass

    def _claim_next(self) -> bool:
        """Claim a turn, on the claiming thread; return whether there was one. The loop then runs it."""
        if unsure := self._unsure.copy():
            turns.interrupt(UNSTORED, self.own, unsure)
            self._unsure -= unsure
        return self._claim_one()

    def _claim_one(self, stored: Turn | None = None) -> bool:
        """Claim the next turn, which may be one that this transaction has stored; False if there is none, or no room.

        Who is busy and who was served is in memory, and nobody else claims for this machine, so nothing has to be read
        from the store again.
        """
        self._may_wait = True  # until the queue was read
        if not turns.is_working(self.own):
            self._supersede()
            return False
        at_work = list(self.running.values())
        running = [each.turn for each in at_work]
        places = self.capacity or ControlSettings.current().pool_turns
        is_full, spare = len(running) >= places, reserve(places)
        busy, families = {turn.agent_id for turn in running}, [each.sent_by for each in at_work]
        # The last places are for what operators send. What one family sent leaves as many again to other agents.
        is_reserved, most = len(running) - families.count(None) >= places - spare, places - 2 * spare

        def has_place(turn: QueuedTurn) -> bool:
            return not is_full and (turn.family is None or not (is_reserved or families.count(turn.family) >= most))

        awaited = self._awaited(running) if len(running) >= most else set()
        if self._stopping.is_set() or (is_full and not awaited):
            return False
        ways = outages.ways(now())
        rows = [QueuedTurn(*row) for row in turns.queued_turns(ways, self.own.machine)]
        queued = {turn for turn in rows if turn.agent in awaited or has_place(turn)}
        while (
            chosen := self._fairness.first((turn for turn in queued if turn.agent not in busy), families)
        ) is not None:
            queued.remove(chosen)
            self._unsure.add(chosen.turn_id)  # until the commit, whose outcome may stay unknown
            is_stored = stored is not None and stored.pk == chosen.turn_id
            # Outside of the transaction that stores it, a turn is claimed by what holds in its own.
            claim = partial(turns.claim, chosen.turn_id, own=self.own)
            turn = claim(stored=stored, ways=ways) if is_stored else claim()
            if turn is not None:
                transaction.on_commit(partial(self._claimed, chosen, turn))  # runs at once outside of a transaction
                break
            self._unsure.remove(chosen.turn_id)  # it was cancelled meanwhile
        self._may_wait = len(rows) > (chosen is not None)
        return chosen is not None

    def _supersede(self) -> None:
        """End this worker at once: its machine counts as lost, or another worker has its name."""
        log.error("The machine %r counts as lost, or has another worker: this one ends its runs.", self.own.machine)
        self._lost = True
        self._loop.call_soon_threadsafe(partial(self.stop, at_once=True))

    @staticmethod
    def _awaited(running: Sequence[Turn]) -> set[str]:
        """Return the agents that running turns have sent to and may wait for: one at a time for each sender. They may
        run although all places are taken; otherwise a place would wait for itself."""
        names = {turn.agent_id: turn.agent.agent_id for turn in running}
        here = set(names.values())
        sent = [each for each in turns.sent_by_agents() if each[1] in here and names.get(each[0]) != each[1]]
        served = {sender for agent, sender in sent if agent in names}
        return {agent for agent, sender in sent if sender not in served}

    def _claimed(self, waited: QueuedTurn, turn: Turn) -> None:
        self._unsure.remove(turn.pk)
        self._fairness.serve(waited)
        running = self.running[turn.pk] = RunningTurn(turn, self.report, sent_by=waited.family)
        self._loop.call_soon_threadsafe(self._start, running)

    def _queued_here(self, turn: Turn, **_: Any) -> None:
        """Claim a turn that the claiming thread has queued, in the same transaction: one commit for both."""
        if threading.get_ident() == self._claimer and not self._unsure:
            self._claim_one(turn)

    def _is_queued(self, event: Event) -> bool:
        """Return whether an event is about a turn to claim; not so if it was claimed when it was queued."""
        turn_id = event.payload.get("turn_id")
        return event.type == QUEUED and turn_id not in self._unsure and turn_id not in self.running

    def _start(self, running: RunningTurn) -> None:
        task = asyncio.create_task(self._see_through(running))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if running.turn.pk in self._asked:
            running.cancel()

    def _claim_soon(self) -> None:
        if self._claims is not None:
            self._claims.wake()

    async def _cancel(self) -> None:
        self._asked = set(await in_thread(READERS, turns.cancel_asked))
        for turn_id in self._asked & self.running.keys():
            self.running[turn_id].cancel()

    async def _see_through(self, running: RunningTurn) -> None:
        """Run one turn, store its end, and wait for its runner to stop. Its agent starts no other turn before."""
        try:
            ended = await running.run()
            await stored(partial(turns.settle_turn, running.turn, ended), STORE_SECONDS, twice=True)
        except Exception as error:
            log.error("A turn's end could not be stored (%s); it counts as interrupted.", error, exc_info=error)
            self._unsure.add(running.turn.pk)
        finally:
            await running.gone()
            self.running.pop(running.turn.pk, None)
            if self._may_wait or self._unsure:
                self._claim_soon()  # there is room for another

    async def _end(self) -> None:
        """End within a bounded time: store turns that did not finish as interrupted, then cancel them."""
        await in_thread(WRITERS, bool)  # wait for a running claim: its turn counts, too
        if self._tasks and self._patient:
            await asyncio.wait(self._tasks, timeout=ControlSettings.current().pool_stop_seconds)
        own = self._unsure | self.running.keys() if self._lost else None
        try:
            await stored(partial(turns.interrupt, ENDED, self.own, own), END_SECONDS, twice=True)
            if self.is_hub and not self._lost:
                await stored(partial(machines.end, self.own), END_SECONDS, twice=True)
                await stored(partial(pool.end_temporary, self._hub_ended or now()), END_SECONDS, twice=True)
        except (DatabaseError, NexusError) as error:
            log.warning("The pool's end could not be stored (%s); the next start does that.", error)
        for running in list(self.running.values()):
            running.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=END_SECONDS)
