"""Whether agents' programs may run on this machine. If they may, they are as local as its operator."""

from __future__ import annotations

from datetime import timedelta

from nexus.control.models import Turn, TurnStatus
from nexus.control.runners.configuration import REHEARSAL, changed_at, start_programs

TICK = timedelta(seconds=0.05)  # a file's time may be one tick of the system's clock behind,
COARSE = timedelta(seconds=2)  # or in whole seconds, on some file systems


def programs_may_run() -> bool:
    """Return whether a runner may start programs, or a turn still runs that began with an earlier runners file."""
    if start_programs():
        return True
    running, changed = Turn.objects.filter(status=TurnStatus.RUNNING), changed_at()
    if changed is None:
        return running.exclude(agent__runner=REHEARSAL.name).exists()
    return running.filter(started_at__lte=changed + (TICK if changed.microsecond else COARSE)).exists()
