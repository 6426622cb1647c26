"""Outages: providers that are known to fail, one for each runner and its key. Meanwhile no turn starts on the runner
unless somebody waits for its answer: the others wait, or go to the runner's fallback.

An outage ends with its time, with the first turn that ends well, and when an operator says so. If turns fail again
after its time, the next wait is longer.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from nexus.control import faults
from nexus.control.events import emit_of_pool
from nexus.control.faults import Fault
from nexus.control.models import Outage, Turn
from nexus.control.runners_file import Acp, Rehearsal, Runner, runners
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.operations.errors import not_found


def ways(moment: datetime) -> dict[str, str | None]:
    """Return what takes the turns of each runner that is out: its fallback, or None if they wait."""
    outages = [outage for outage in Outage.objects.filter(is_confirmed=True) if outage.is_out(moment)]
    if not outages:
        return {}
    known = runners().by_name
    out = {each.runner for each in outages if each.runner in known and each.key == _key(known[each.runner])}
    return {name: _way(name, known, out) for name in out}


def stand_in(name: str, ways: Mapping[str, str | None]) -> str | None:
    """Return what takes a turn that failed on its runner; None if only the runner itself can."""
    runner = runners().by_name.get(name)
    other = None if runner is None else fallback(runner)
    way = None if other is None else ways.get(other, other)
    return None if way == name else way


def _way(name: str, known: Any, out: Collection[str]) -> str | None:
    """Return the runner itself, or the first of its fallbacks, that is not out."""
    seen = set()
    while name not in seen and name in known:
        if name not in out:
            return name
        seen.add(name)
        name = fallback(known[name]) or ""
    return None


def fallback(runner: Runner) -> str | None:
    """Return the name of the runner that takes the turns while this one is out."""
    return None if isinstance(runner, Rehearsal) else runner.fallback


def note_fault(runner: Runner, fault: Fault, why: str, turn: Turn, moment: datetime) -> None:
    """Record a fault that ended a turn. It is an outage once agents of two families met it, so that no agent can stop
    another's turns. Call it inside a transaction."""
    outage, key = Outage.objects.filter(runner=runner.name).first(), _key(runner)
    if outage is not None and outage.key == key:
        if outage.reset_at is not None and turn.started_at is not None and turn.started_at <= outage.reset_at:
            return
        if outage.is_out(moment):  # turns that were under way when it began
            return
    owner = turn.agent.owner
    if outage is None or not _goes_on(outage, key, fault, moment):
        outage = Outage(runner=runner.name, key=key, since=moment, failures=0, fault=fault.kind.value, met_by=owner)
    elif outage.is_confirmed:  # its time is over: it takes two again
        outage.is_confirmed, outage.met_by = False, owner
    elif outage.met_by != owner:
        outage.is_confirmed, outage.failures = True, outage.failures + 1
    outage.why, outage.until = why, moment + timedelta(seconds=faults.seconds_to_wait(fault, outage.failures or 1))
    outage.save()
    if outage.is_confirmed and outage.failures == 1:
        payload = {"fault": outage.fault, "why": why[:200], "until": iso(outage.until)}
        _emit("provider.out", None, runner.name, moment, **payload)


def _goes_on(outage: Outage, key: str, fault: Fault, moment: datetime) -> bool:
    """Return whether a fault continues an outage, instead of beginning another."""
    is_fresh = outage.until > moment - timedelta(seconds=faults.LONGEST_NAMED)
    return is_fresh and outage.reset_at is None and (outage.key, outage.fault) == (key, fault.kind)


def note_success(runner: str, moment: datetime) -> None:
    """Record that a runner's provider answered: its outage is over. Call it inside a transaction."""
    outage = Outage.objects.filter(runner=runner).first()
    if outage is None or outage.reset_at is not None:
        return
    outage.delete()
    if outage.failures:
        _start_waiting(runner)
        _emit("provider.back", None, runner, moment)


def reset(runner: str, by: str) -> Outage:
    """End an outage, so that the runner's turns start again. Turns that run now do not begin another. Raises
    NOT_FOUND."""
    moment = now()
    with write():
        outage = Outage.objects.met().select_for_update().filter(pk=runner).first()
        if outage is None:
            raise not_found("outage", runner[:200])
        Outage.objects.filter(pk=runner).update(reset_at=moment, is_confirmed=False)
        _start_waiting(runner)
        _emit("provider.reset", by, runner, moment)
    return outage


def _start_waiting(runner: str) -> None:
    Turn.objects.queued().filter(agent__runner=runner, due_at__isnull=False).update(due_at=None)


def _key(runner: Runner) -> str:
    """Return a digest of a runner's configuration and its key. A runner that changed, or that has another key, is not
    known to fail."""
    given = [runner.model_dump_json(), *(os.environ.get(name, "") for name in runner.variables)]
    for path in runner.sign_in if isinstance(runner, Acp) else ():
        with suppress(OSError, RuntimeError):  # it is not there, or there is no home
            given.append(str(Path(path).expanduser().stat().st_mtime_ns))
    return sha256("\0".join(given).encode()).hexdigest()[:32]


def _emit(type: str, actor: str | None, runner: str, moment: datetime, **payload: Any) -> None:
    emit_of_pool(type, actor, moment, {"runner": runner, **payload})
