"""The shares of threads in which agents' calls count: an agent's own, or one that it has with its family."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial

from nexus.core import waiting
from nexus.core.apps import nexus_apps
from nexus.core.operations.caller import Caller

MOST_KNOWN = 10_000  # callers whose share is remembered, the latest

# By what bound the caller, as another agent may take the name.
_known: OrderedDict[tuple[str | None, str], str] = OrderedDict()


async def share_of(caller: Caller) -> str | None:
    """Return the share of a caller; None for one without a share, such as an operator."""
    if (key := _key_of(caller)) is None:
        return None
    return _known.get(key) or await waiting.in_thread(waiting.READERS, partial(share_from_thread, caller))


def share_from_thread(caller: Caller) -> str | None:
    """Do what `share_of` does, from a thread that may read the store."""
    if (key := _key_of(caller)) is None:
        return None
    if (found := _known.get(key)) is None:
        found = next(filter(None, (app.share_of(key[1]) for app in nexus_apps())), key[1])
        _known[key] = found
        if len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
    return found


def _key_of(caller: Caller) -> tuple[str | None, str] | None:
    return None if caller.agent_id is None else (caller.credential or caller.connection, caller.agent_id)
