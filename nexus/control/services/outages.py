"""Outages: providers that are known to fail, one for each runner and its key. While there is one, no turn starts on the
runner: its turns wait, or go to the runner's fallback.

When the outage's time is over, one turn is let through. If it ends well, the outage is over; if not, the next wait is
longer.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from django.db.models import Q

from coordination.log.emit import emit
from coordination.models import VisibilityChoices
from coordination.services.audit import NOBODY
from nexus.control import faults
from nexus.control.faults import Fault
from nexus.control.models import STREAM, Outage, Turn, TurnStatus
from nexus.control.runners.configuration import Acp, Rehearsal, Runner, runners
from nexus.core.clock import iso, now
from nexus.core.database.prepared import Select, Slot
from nexus.core.database.store import write
from nexus.core.operations.errors import not_found

_all = Select(lambda: Outage.objects.all())
_of = Select(lambda: Outage.objects.filter(runner=Slot("runner")))


def ways(moment: datetime) -> dict[str, str | None]:
    """Return what takes the turns of each runner that is out: itself, if a turn is to try it; its fallback; or None if
    they wait."""
    outages = {outage.runner: outage for outage in _all()}
    if not outages:
        return {}
    known = runners().by_name
    out = {
        name: not _may_be_tried(outage, moment)
        for name, outage in outages.items()
        if name in known and outage.key == _key(known[name])
    }
    return {name: _way(name, known, out) for name in out}


def _way(name: str, known: Any, out: dict[str, bool]) -> str | None:
    """Return the runner itself, or the first of its fallbacks, that is not out."""
    seen = set()
    while name not in seen and name in known:
        if not out.get(name):
            return name
        seen.add(name)
        name = fallback(known[name]) or ""
    return None


def fallback(runner: Runner) -> str | None:
    """Return the name of the runner that takes the turns while this one is out."""
    return None if isinstance(runner, Rehearsal) else runner.fallback


def _may_be_tried(outage: Outage, moment: datetime) -> bool:
    """Return whether a turn may try the runner: its time is over, and no turn tries it yet."""
    if outage.until is None or outage.until > moment:
        return False
    its = Q(runner=outage.runner) | Q(runner=None, agent__runner=outage.runner)
    return not Turn.objects.filter(its, status=TurnStatus.RUNNING, started_at__gte=outage.until).exists()


def note_fault(runner: Runner, fault: Fault, why: str, moment: datetime) -> Outage:
    """Record a fault of a runner's provider: it begins an outage, or makes it longer. Call it inside a transaction."""
    outage, key = _of.first(runner=runner.name), _key(runner)
    is_new = outage is None or outage.key != key
    if outage is None or outage.key != key:
        outage = Outage(runner=runner.name, key=key, since=moment, failures=0)
    if is_new or (outage.until is not None and outage.until <= moment):
        outage.failures += 1
    seconds = faults.seconds_to_wait(fault, outage.failures)
    until = None if fault.kind is faults.FaultKind.KEY else moment + timedelta(seconds=seconds)
    if is_new or until is None or (outage.until is not None and outage.until < until):
        outage.fault, outage.why, outage.until = fault.kind.value, why, until
    outage.save()
    if is_new:
        payload = {"fault": outage.fault, "why": why[:200], "until": iso(until) if until else None}
        _emit("provider.out", None, runner.name, moment, **payload)
    return outage


def note_success(runner: str, moment: datetime) -> None:
    """Record that a runner's provider answered: its outage is over, unless it named a time that is not over. Call it
    inside a transaction."""
    outage = _of.first(runner=runner)
    if outage is not None and outage.until is not None and outage.until <= moment:
        _end(outage)
        _emit("provider.back", None, runner, moment)


def reset(runner: str, by: str) -> Outage:
    """End an outage, so that the runner's turns start again. Raises NOT_FOUND."""
    moment = now()
    with write():
        outage = Outage.objects.select_for_update().filter(pk=runner).first()
        if outage is None:
            raise not_found("outage", runner[:200])
        _end(outage)
        _emit("provider.reset", by, runner, moment)
    return outage


def _end(outage: Outage) -> None:
    Outage.objects.filter(pk=outage.runner).delete()
    Turn.objects.queued().filter(agent__runner=outage.runner, due_at__isnull=False).update(due_at=None)


def _key(runner: Runner) -> str:
    """Return a digest of a runner's configuration and its key. A runner that changed, or that has another key, is not
    known to fail."""
    given = [runner.model_dump_json(), *(os.environ.get(name, "") for name in runner.variables)]
    for path in runner.sign_in if isinstance(runner, Acp) else ():
        with suppress(OSError, RuntimeError):  # it is not there, or there is no home
            given.append(str(Path(path).expanduser().stat().st_mtime_ns))
    return sha256("\0".join(given).encode()).hexdigest()[:32]


def _emit(type: str, actor: str | None, runner: str, moment: datetime, **payload: Any) -> None:
    emit(
        workspace_id=None,
        stream=STREAM,
        type=type,
        actor=actor,
        payload={"runner": runner, **payload},
        moment=moment,
        visibility=VisibilityChoices.PRIVATE,
        target=NOBODY,
    )
