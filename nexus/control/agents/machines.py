"""Machines that run the pool's agents: each start of a worker is an incarnation, which beats until it ends or is lost.

An agent stays with its machine, because its directory is there. Runs of a machine that is lost end as interrupted.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models.functions import Now

from nexus.control.agents import turns
from nexus.control.errors import ControlCode
from nexus.control.events import emit_of_pool
from nexus.control.models import HUB, Incarnation, Machine, MachineState, PoolAgent
from nexus.control.runners_file import Runner
from nexus.core.clock import follow, iso, now
from nexus.core.config import package_version
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError

KILLED = "the worker that took it ended"
BEAT_SECONDS = 1.0  # between two beats, and between two looks for machines that are lost
LOOKS = 3  # without a beat, until a machine counts as lost
LONGEST_PAUSE = 4.0  # seconds between two looks that count in a row


def choose(runner: Runner, parent: PoolAgent | None) -> str:
    """Return the machine of a new agent: its parent's, else the hub if the runner needs no labels, else the one with
    the fewest agents for its size that has the labels. Raises NO_MACHINE."""
    if parent is not None or not runner.labels:
        name = HUB if parent is None else parent.machine
        machine = Machine.objects.filter(pk=name).first()
        if why := _why_not(machine, name, runner):
            beside = f", and {parent.agent_id!r}, above the new agent, lives there" if parent else ""
            raise _none(runner, [f"{why}{beside}"])
        return name
    known = list(Machine.objects.working().exclude(pk=HUB).order_by("name"))
    why_not = [(machine, _why_not(machine, machine.name, runner)) for machine in known]
    fitting = [machine for machine, why in why_not if not why]
    if not fitting:
        refusals = [why for _, why in why_not]
        raise _none(runner, refusals or ["no machine works beside the hub: start one with `nexus run-pool --labels`"])
    agents = Counter(PoolAgent.objects.living().values_list("machine", flat=True))
    return min(fitting, key=lambda machine: agents[machine.name] / machine.capacity).name


def _why_not(machine: Machine | None, name: str, runner: Runner) -> str:
    """Return why a machine takes no new agent of a runner; empty if it does. The hub's worker may start later."""
    if machine is None or (name == HUB and not runner.labels):
        return f"{name} has no labels" if runner.labels else ""
    if machine.state != MachineState.WORKING:
        return f"{name} is {machine.state}"
    if lacking := machine.lacks(runner.labels):
        return f"{name} lacks {', '.join(lacking)}"
    return "" if runner.name in machine.runners else f"the runners.toml of {name} has no runner {runner.name}"


def _none(runner: Runner, why: Sequence[str]) -> NexusError:
    labels = f"a machine with the labels {', '.join(runner.labels)}" if runner.labels else "a machine"
    return NexusError(
        ControlCode.NO_MACHINE,
        f"The runner {runner.name} needs {labels}: {'; '.join(why[:10])}.",
        {"labels": runner.labels},
    )


def follow_clock() -> None:
    """Let this process follow the clock of a PostgreSQL database, which all machines share."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        follow(cursor.fetchone()[0])


def begin_incarnation(
    name: str,
    *,
    runners: Collection[str],
    capacity: int,
    labels: Sequence[str] = (),
    own: Incarnation | None = None,
    but: Collection[str] = (),
) -> Incarnation:
    """Begin the next incarnation of a machine, and interrupt the runs of earlier ones, except those in `but`.

    `own` is the caller's own incarnation before. Raises CONFIG_ERROR while another process beats under this name. The
    hub's worker is alone by its lock, so it is never refused.
    """
    moment = now()
    with write():
        known = Machine.objects.filter(pk=name).first()
        if name != HUB and known is not None and (own is None or known.epoch != own.epoch):
            _check_free(name)
        machine = Machine(
            name=name,
            epoch=known.epoch + 1 if known else 1,
            labels=sorted(set(labels)),
            runners=sorted(runners),
            capacity=capacity,
            host=_host(),
            pid=os.getpid(),
            version=package_version(),
            load=_load(),
            started_at=Now(),
            beat_at=Now(),
        )
        machine.save(force_insert=known is None)
        begun = Incarnation(name, machine.epoch)
        turns.interrupt(KILLED, begun, but=but)
        if name != HUB:
            _emit("machine.started", None, name, moment, host=machine.host, labels=machine.labels)
    return begun


def _check_free(name: str) -> None:
    other = Machine.objects.fresh().filter(pk=name).first()
    if other is not None and (other.host, other.pid) != (_host(), os.getpid()):  # else it is a commit that was in doubt
        raise NexusError(
            Code.CONFIG_ERROR,
            f"A worker called {name!r} works already: process {other.pid} on {other.host}, last sign of life "
            f"{iso(other.beat_at)}. Give this one another --name; or stop that one first, and if it was killed, try "
            "again in ten seconds.",
        )


def beat(own: Incarnation, *, runners: Collection[str]) -> bool:
    """Record a sign of life; False if this incarnation is over. It waits for no other writer."""
    rows = Machine.objects.working().filter(pk=own.machine, epoch=own.epoch)
    return rows.update(beat_at=Now(), load=_load(), runners=sorted(runners)) == 1


def _host() -> str:
    return socket.gethostname()[:255] or "unknown"


def _load() -> float:
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)


def end(own: Incarnation) -> None:
    """Record the end of an incarnation. What it may have left running is interrupted."""
    moment = now()
    with write():
        if Machine.objects.working().filter(pk=own.machine, epoch=own.epoch).update(ended_at=Now()):
            turns.interrupt(KILLED, own)
            if own.machine != HUB:
                _emit("machine.ended", None, own.machine, moment)


class LostMachines:
    """Find lost machines. A machine is lost if several looks in a row see the same old sign of life. One look proves
    nothing: while the database is away, no machine can beat."""

    def __init__(self, looks: int = LOOKS) -> None:
        """`looks`: in so many, one each second, no beat came."""
        self.looks = looks
        self._seen: dict[str, tuple[datetime, int]] = {}  # the last beat of each silent machine, and its looks
        self._looked = time.monotonic()

    def look(self) -> None:
        """Look once, and record which machines are lost. After a pause, or a look that failed, counting starts
        again."""
        before, self._looked = self._looked, time.monotonic()
        seen, self._seen = self._seen if self._looked - before < LONGEST_PAUSE else {}, {}
        for machine in list(Machine.objects.silent()):
            beat, looks = seen.get(machine.name, (None, 0))
            looks = looks + 1 if beat == machine.beat_at else 1
            self._seen[machine.name] = machine.beat_at, looks
            if looks >= self.looks:
                lose(machine)


def lose(machine: Machine) -> bool:
    """Record that a machine is lost since this beat, and interrupt its runs; False if it has beaten since, or another
    process did so."""
    moment = now()
    with write():
        rows = Machine.objects.silent().filter(pk=machine.name, epoch=machine.epoch, beat_at=machine.beat_at)
        if not rows.update(is_lost=True, ended_at=Now(), epoch=machine.epoch + 1):
            return False
        own = Incarnation(machine.name, machine.epoch)
        runs = turns.interrupt(f"its machine, {machine.name}, was lost", own)
        _emit("machine.lost", None, machine.name, moment, host=machine.host, runs=runs)
    return True


def _emit(type: str, actor: str | None, name: str, moment: datetime, **payload: Any) -> None:
    emit_of_pool(type, actor, moment, {"machine": name, **payload})
