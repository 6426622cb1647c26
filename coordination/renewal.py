"""Renewal of leases whenever their holder acts. The apps whose leases are renewed register here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

EVERY = timedelta(seconds=3)  # per process: more than half of the shortest lease is left by then
REMEMBERED = 10_000  # agents

Renew = Callable[[str, datetime], None]

_registered: dict[str, Renew] = {}
_renewed: dict[str, datetime] = {}  # by agent, when its leases were last renewed in this process


def register(name: str, renew: Renew) -> None:
    """Register the function that renews an agent's running leases inside the transaction of its act."""
    _registered[name] = renew


def renew_leases(agent_id: str, moment: datetime) -> None:
    """Renew the leases of an agent that acted or sent a heartbeat. Call it inside a transaction."""
    last = _renewed.get(agent_id)
    if last is not None and moment - EVERY < last <= moment:  # a time in the future: the clock was set back
        return
    if len(_renewed) >= REMEMBERED:
        _renewed.clear()
    _renewed[agent_id] = moment
    for renew in _registered.values():
        renew(agent_id, moment)
