"""The notices of `nexus hook` about mail, handoffs and debts: each once, and again before the agent stops.

Most calls see by a file's time that nothing is new, and do not read the store. Standard library alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nexus.core import processes
from nexus.core.coding_clients import PROMPT, SESSION_START, STOP
from nexus.core.harness_events import Activity
from nexus.hooks import activity, hook_state, signal_files
from nexus.hooks.harness import Ask, HookCall, is_woken

if TYPE_CHECKING:
    from nexus.hooks.quick_check import PendingWork

BACKGROUND_SECONDS = 60


def announcement(settings: Any, call: HookCall, ask: Ask) -> str:
    """Return the notice; empty if there is nothing to say, or another call says it right now."""
    with hook_state.lock(settings.home, call) as alone:
        # A harness runs tools in parallel, and their hooks, too: only one of them prints the notice.
        return _announce(settings, call, ask) if alone else ""


def _announce(settings: Any, call: HookCall, ask: Ask) -> str:
    kept = hook_state.load(settings.home, call)
    if call.event == SESSION_START:
        # A new context has been told nothing.
        kept = hook_state.HookMemory(activity=kept.activity, woken=kept.woken)
    if call.event == PROMPT and kept.woken and not is_woken(call.payload):
        kept.woken = ()  # somebody is there
        hook_state.save(settings.home, call, kept)
    does = activity.told_activity(call, kept.activity) or kept.activity
    due = does != kept.activity or _passed(kept.refresh_by, settings)
    must_look = call.takes_mail and _must_look(settings, call, kept)
    if not (due or must_look):
        return ""
    if due:
        kept.activity, kept.refresh_by = does, time.time() + pace(settings)
        until = activity.quota_until(call.payload) if does == Activity.OUT_OF_QUOTA else None
        told = {"activity": does or None, "at": time.time(), "until": until}
        if call.event == SESSION_START and hook_state.credentials(settings.home, call) is None:
            ask("refresh", call, **told)  # its first session: others may write to it as soon as its client is there
        else:
            _in_background(lambda: ask("refresh", call, **told))
    answer = _news(settings, call, kept, ask) if must_look else ""
    hook_state.save(settings.home, call, kept)
    hook_state.clear_fault(settings.home, call)
    return answer


def pace(settings: Any) -> float:
    """Return the seconds that may pass without a check of the store or a heartbeat."""
    return float(settings.session_stale_ttl_seconds / 2)


def _passed(moment: float, settings: Any) -> bool:
    """Return whether a stored moment is over. One that is too far ahead counts as over: the clock was set back."""
    return not 0 < moment - time.time() <= pace(settings)


def _must_look(settings: Any, call: HookCall, kept: hook_state.HookMemory) -> bool:
    if call.event == STOP or _passed(kept.look_by, settings):  # no signal is sent for what the agent took itself
        return True
    seen = signal_files.stamp(settings.home, call.agent_id)
    return seen is None or seen != kept.signal


def _news(settings: Any, call: HookCall, kept: hook_state.HookMemory, ask: Ask) -> str:
    """Return a notice of what is new, once; at Stop, once more of what still waits, and once of the agent's debts."""
    signal_files.arm(settings.home, call.agent_id)
    kept.signal = signal_files.stamp(settings.home, call.agent_id)  # before the check, so that none is missed
    found = seen(settings, call, ask)
    kept.look_by = min(found.changes_at, time.time() + pace(settings))
    kept.told = [item for item in kept.told if item in found.waiting]
    kept.pressed = [item for item in kept.pressed if item in found.waiting]
    known = kept.pressed if call.event == STOP else kept.told
    debts = found.owed - set(kept.owed)
    if call.event == STOP:
        kept.owed = sorted(found.owed)
    if found.waiting <= set(known) and not debts:
        return ""
    owed = ask("owed", call, keys=sorted(debts)) if debts else ""
    if found.waiting <= set(known):
        return str(owed)
    text, fresh = ask("waiting", call, known=list(known))
    kept.told = sorted(found.waiting.union(fresh))  # the notice gives the number of what it does not show
    if call.event == STOP or is_woken(call.payload):
        kept.pressed = kept.told
    return str(text + owed)


def seen(settings: Any, call: HookCall, ask: Ask) -> PendingWork:
    """Return what waits; without Django or the hub if the store is a file."""
    from nexus.hooks import quick_check  # takes a tenth of the time of a call that does not read the store

    if settings.database_url is None:
        return quick_check.glance(
            settings.database,
            agent_id=call.agent_id,
            root=call.root,
            busy_ms=settings.busy_timeout_ms,
            owing=call.event == STOP,
        )
    waiting, changes_at, owed, personal = ask("seen", call)
    return quick_check.PendingWork(set(waiting), changes_at, frozenset(owed), frozenset(personal))


def _in_background(work: Callable[[], None]) -> None:
    """Run what the harness need not wait for in a separate process; at once if there can be none."""
    if "django" in sys.modules:  # no connection to the store survives a fork
        work()
    else:
        processes.in_background(work, BACKGROUND_SECONDS)
