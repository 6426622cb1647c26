"""What a connection said of itself, so that its calls need not say it again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Operation

KINDS = ("stdio:", "mcp:")  # connections of one client, which last; whoever holds a key may be several
MOST = 10_000  # connections that are remembered, the latest


@dataclass(frozen=True)
class OfConnection:
    """Marks a parameter that names the project: left out, it is the connection's, unless the call has `unless`."""

    unless: str = ""


class Joined(NamedTuple):
    """Who is at the other end, and in which project."""

    agent_id: str
    project_root: str


_joined: OrderedDict[str, Joined] = OrderedDict()
_lock = Lock()


def remember(caller: Caller, joined: Joined) -> None:
    """Keep what a connection said, for as long as this process knows it."""
    connection = caller.connection
    if connection is None or not connection.startswith(KINDS):
        return
    with _lock:
        _joined[connection] = joined
        _joined.move_to_end(connection)
        if len(_joined) > MOST:
            _joined.popitem(last=False)


def completed(operation: Operation[Any], caller: Caller, arguments: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The arguments of a call, with the acting agent and the project of its connection where it leaves them out."""
    given = arguments or {}
    if operation.accepts_anything or caller.operator is not None:
        return given
    joined = _joined.get(caller.connection or "")
    acting, agent_id = operation.acts_as, caller.agent_id or (joined and joined.agent_id)
    more: dict[str, Any] = {}
    if acting is not None and agent_id is not None and acting not in given:
        more[acting] = agent_id
    if joined is not None:
        more |= {
            name: joined.project_root
            for name, declared in operation.params.model_fields.items()
            for mark in declared.metadata
            if isinstance(mark, OfConnection) and name not in given and mark.unless not in given
        }
    return {**given, **more} if more else given
