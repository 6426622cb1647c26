"""What `nexus hook` tells its agent of its mail, its handoffs and its debts: once, and again before it stops.

Most calls see by a file's time that nothing came since the last, and do not ask the store. Standard library alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nexus.core import processes
from nexus.hooks import memory, signal_files
from nexus.hooks.harness import SESSION_START, STOP, Ask, Call

if TYPE_CHECKING:
    from nexus.hooks.quick_check import Seen

BACKGROUND_SECONDS = 60


def notice_text(settings: Any, call: Call, ask: Ask) -> str:
    """What to tell of it; the empty string when there is nothing, or another call tells of it just now."""
    with memory.alone(settings.home, call) as alone:
        # A harness runs tools in parallel, and their hooks with them: one of them tells.
        return _turn(settings, call, ask) if alone else ""


def _turn(settings: Any, call: Call, ask: Ask) -> str:
    told = memory.load(settings.home, call)
    if call.event == SESSION_START:
        told = memory.HookMemory()  # a new context knows nothing
    due, must_look = _passed(told.refresh_by, settings), _must_look(settings, call, told)
    if not (due or must_look):
        return ""
    if due:
        told.refresh_by = time.time() + _pace(settings)
        _in_background(lambda: ask("refresh", call))
    answer = _look(settings, call, told, ask) if must_look else ""
    memory.keep_told(settings.home, call, told)
    return answer


def _pace(settings: Any) -> float:
    """How many seconds may go by without a look at the store or a heartbeat."""
    return float(settings.session_stale_ttl_seconds / 2)


def _passed(moment: float, settings: Any) -> bool:
    """Whether a remembered moment is over; one that is too far ahead was written before the clock went back."""
    return not 0 < moment - time.time() <= _pace(settings)


def _must_look(settings: Any, call: Call, told: memory.HookMemory) -> bool:
    if call.event == STOP or _passed(told.look_by, settings):  # what it took itself since, no signal tells of
        return True
    seen = signal_files.stamp(settings.home, call.agent_id)
    return seen is None or seen != told.signal


def _look(settings: Any, call: Call, told: memory.HookMemory, ask: Ask) -> str:
    """Tell what is new, once; at Stop, once more what still waits, and once what the agent owes."""
    signal_files.arm(settings.home, call.agent_id)
    told.signal = signal_files.stamp(settings.home, call.agent_id)  # before the look, so that none is missed
    seen = _seen(settings, call, ask)
    told.look_by = min(seen.changes_at, time.time() + _pace(settings))
    told.told = [item for item in told.told if item in seen.waiting]
    told.pressed = [item for item in told.pressed if item in seen.waiting]
    known = told.pressed if call.event == STOP else told.told
    debts = seen.owed - set(told.owed)
    if call.event == STOP:
        told.owed = sorted(seen.owed)
    if seen.waiting <= set(known) and not debts:
        return ""
    owed = ask("owed", call, keys=sorted(debts)) if debts else ""
    if seen.waiting <= set(known):
        return str(owed)
    text, fresh = ask("waiting", call, known=list(known))
    told.told = sorted(seen.waiting.union(fresh))  # the notice counts what it does not show
    if call.event == STOP:
        told.pressed = told.told
    return str(text + owed)


def _seen(settings: Any, call: Call, ask: Ask) -> Seen:
    """What waits: without Django or the hub where the store is a file."""
    from nexus.hooks import quick_check  # a tenth of the time of a call that does not ask the store

    if settings.database_url is None:
        return quick_check.glance(
            settings.database,
            agent_id=call.agent_id,
            root=call.root,
            busy_ms=settings.busy_timeout_ms,
            owing=call.event == STOP,
        )
    waiting, changes_at, owed = ask("seen", call)
    return quick_check.Seen(set(waiting), changes_at, frozenset(owed))


def _in_background(work: Callable[[], None]) -> None:
    """Do what the harness need not wait for in a process of its own; at once where there can be none."""
    if "django" in sys.modules:  # no connection to the store survives a fork
        work()
    else:
        processes.in_background(work, BACKGROUND_SECONDS)
