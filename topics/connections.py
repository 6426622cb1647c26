"""Which peer each connection is, for as long as this process lives: after a restart a client joins again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from core.operations.caller import Caller

MOST = 100_000  # of the connections' names; of more, those that were not used longest are forgotten


class Held(NamedTuple):
    """The name that a connection has in a topic, and the token that reclaims it."""

    agent_name: str
    token: str


_held: OrderedDict[tuple[str, str], Held] = OrderedDict()
_lock = threading.Lock()


def hold(caller: Caller, topic_id: str, held: Held) -> None:
    """From here on the caller's connection is this peer in the topic."""
    with _lock:
        _held[_key(caller, topic_id)] = held
        _held.move_to_end(_key(caller, topic_id))
        if len(_held) > MOST:
            _held.popitem(last=False)


def held(caller: Caller, topic_id: str) -> Held | None:
    """The peer that the caller's connection is in the topic; None when it has not joined."""
    with _lock:
        found = _held.get(_key(caller, topic_id))
        if found:
            _held.move_to_end(_key(caller, topic_id))
        return found


def _key(caller: Caller, topic_id: str) -> tuple[str, str]:
    return caller.connection or caller.transport, topic_id
