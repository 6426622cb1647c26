"""The peer that each connection is, in this process's memory: after a restart a client joins again.

The relay of an agent on stdio passes its peers on to the next hub.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from nexus.core.operations.caller import Caller
from nexus.topics import services

MOST = 100_000  # names of connections; beyond that, the least recently used are forgotten


class HeldName(NamedTuple):
    """The name of a connection in a topic, and the token that reclaims it."""

    agent_name: str
    token: str


_held: OrderedDict[tuple[str, str], HeldName] = OrderedDict()
_topics: dict[str, set[str]] = {}  # by connection, the topics in which it has a name
_lock = threading.Lock()


def hold(caller: Caller, topic_id: str, held: HeldName) -> None:
    """Make the caller's connection this peer in the topic."""
    with _lock:
        _hold(_key(caller, topic_id), held)


def joined_peer(caller: Caller, topic_id: str) -> HeldName | None:
    """Return the peer that the caller's connection is in the topic; None when it has not joined."""
    with _lock:
        found = _held.get(_key(caller, topic_id))
        if found:
            _held.move_to_end(_key(caller, topic_id))
        return found


def reclaim(caller: Caller) -> list[dict[str, str]]:
    """Make a connection with a key the peers that its agent was, and return their topics and names. A connection that
    has names, as one that joins again, keeps them."""
    if caller.agent_id is None or not caller.connection or names_of(caller.connection):
        return []
    found = []
    for peer, token in services.reclaim(agent_id=caller.agent_id):
        hold(caller, peer.topic_id, HeldName(peer.agent_name, token))
        found.append({"topic_id": peer.topic_id, "topic": peer.topic.name, "agent_name": peer.agent_name})
    return found


def names_of(connection: str) -> dict[str, HeldName]:
    """Return the names of a connection, by topic."""
    with _lock:
        return {topic_id: _held[connection, topic_id] for topic_id in sorted(_topics.get(connection, ()))}


def join_again(connection: str, joined: Any) -> None:
    """Give a connection these names: by topic, each with its token. Raises ValueError for any other shape."""
    if not isinstance(joined, dict) or not all(
        isinstance(each, list) and len(each) == 2 and all(isinstance(text, str) for text in each)
        for each in joined.values()
    ):
        raise ValueError("by topic, a name and its token")
    with _lock:
        for topic_id, (name, token) in joined.items():
            _hold((connection, topic_id), HeldName(name, token))


def _hold(key: tuple[str, str], held: HeldName) -> None:
    _held[key] = held
    _held.move_to_end(key)
    _topics.setdefault(key[0], set()).add(key[1])
    if len(_held) > MOST:
        (connection, topic_id), _ = _held.popitem(last=False)
        _topics[connection].discard(topic_id)
        if not _topics[connection]:
            del _topics[connection]


def _key(caller: Caller, topic_id: str) -> tuple[str, str]:
    return caller.connection or caller.transport, topic_id
