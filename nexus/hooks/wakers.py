"""Which sessions a message can wake: those of whose agent a waiter is at work."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from coordination.models import Session
from nexus.core.coding_clients import HARNESSES
from nexus.core.config import CoreSettings
from nexus.hooks import hook_state


def wakers(sessions: Collection[Session]) -> Mapping[str, tuple[bool, str]]:
    """Return whether each session can be woken, and why so, by session_id. The waiters of another machine cannot be
    seen: what its client does counts there."""
    home = CoreSettings.current().home
    found, waiting = {}, hook_state.waiting_hooks(home)
    for session in sessions:
        hook = hook_state.hook_id(session.agent_id, session.workspace.root_realpath)
        client = HARNESSES.get((session.metadata or {}).get("client", ""))
        is_here = hook_state.last_run(home, hook) is not None
        if hook in waiting:
            found[session.pk] = True, "its waiter runs"
        elif not is_here and client and client.waking:
            found[session.pk] = True, "on another machine; its client starts a waiter"
        else:
            found[session.pk] = False, "no waiter runs"
    return found
