"""Leases that last as long as their holder is heard of: the apps whose leases they are register here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

EVERY = timedelta(seconds=3)  # at most so often in a process: half of the shortest lease and more is left by then
REMEMBERED = 10_000  # agents

Renew = Callable[[str, datetime], None]

_registered: dict[str, Renew] = {}
_renewed: dict[str, datetime] = {}  # by agent, when it was last heard of here


def register(name: str, renew: Renew) -> None:
    """Name what renews the running leases of an agent, inside the transaction of its act."""
    _registered[name] = renew


def heard_of(agent_id: str, moment: datetime) -> None:
    """Inside a transaction: an agent acted, or sent a heartbeat."""
    last = _renewed.get(agent_id)
    if last is not None and moment - EVERY < last <= moment:  # after now: from before the clock was set back
        return
    if len(_renewed) >= REMEMBERED:
        _renewed.clear()
    _renewed[agent_id] = moment
    for renew in _registered.values():
        renew(agent_id, moment)
