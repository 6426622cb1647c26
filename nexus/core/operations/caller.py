"""The caller of an operation: who is behind a connection."""

from __future__ import annotations

import math
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from nexus.core.operations.registry import Operation
    from nexus.core.operations.replies import Data, Outcome

OPERATOR_AGENT = "operator"  # the identity that operators write as; the log says which of them it was
HUB_AGENT = "nexus"  # the sender of mail that nobody wrote: time did, or a file
# The name in the log of whoever acts at this machine without a login, by whatever transport. Only a login proves a
# name: a request does not say who sent it, and a command would take it from a variable that anybody may set.
LOCAL_OPERATOR = "local"


class Request(Protocol):
    """A write that its connection sends again if it lost the answer. What is recorded of it is in the store."""

    repeated: bool  # whether it was sent before

    def outcome(self) -> Outcome | None:
        """Return the recorded outcome; None if nothing was done. If it was done and its outcome is unknown, that is an
        error."""

    def once(
        self, operation: Operation[Any], call: Callable[[], Data], finishes: Callable[[Data], bool] | None
    ) -> Data:
        """Make a call, or finish a wait whose answer `finishes` it, and record the outcome in the same transaction; the
        second of two such calls returns the outcome of the first."""


@dataclass(frozen=True)
class Caller:
    """The caller; passed to every operation, and read from nowhere else.

    Bound to `agent_id`, the connection acts as that agent only. Bound to none it is a trusted local process, which
    names the acting agent with each call. `operator` names the person behind an administrative connection.
    `credential` is what bound it, as the domain knows a key; it is verified with each call, wake and notice.

    `connection` distinguishes connections for as long as they last, and is not secret. Every transport fills it:

    - `stdio:<process>`, `cli:<process>`, `hook:<process>`: a process, its number and a random part;
      that of stdio may be a relay, whose calls the hub makes (`transport` is `relay`);
    - `mcp:<session>`: a session of MCP over HTTP, by the id that the SDK gave it;
    - `key:<digest>`: the holder of a key, for requests without a connection: REST, and MCP over HTTP without sessions;
    - `websocket:<random>`, `sse:<random>`: one socket, one stream;
    - `operator:<name>`: a person at the dashboard or over REST, logged in or at this machine.
    """

    transport: str
    agent_id: str | None = None
    operator: str | None = None
    viewer: bool = False  # an operator who sees everything and does nothing
    connection: str | None = None
    named: str | None = None  # the agent that the client's NEXUS_AGENT_ID names: who calls that leave it out
    credential: str | None = field(default=None, compare=False, repr=False)
    # When the request that makes the one call of this caller verified the credential, in monotonic time.
    verified_at: float = field(default=-math.inf, compare=False, repr=False)
    # Whether the transport itself knows that the bound agent asks, where a call has no room for a session's secret.
    vouched: bool = field(default=False, compare=False, repr=False)
    cwd: str | None = field(default=None, compare=False, repr=False)  # a relay's: where its relative paths begin
    request: Request | None = field(default=None, compare=False, repr=False)  # of a relay: this call, if it writes


def operator_behind(caller: Caller) -> str:
    """Return the person behind a call of an operation that requires OPERATORS_ONLY."""
    assert caller.operator is not None, "the dispatch lets operators alone come here"
    return caller.operator


def operator_connection(name: str) -> str:
    """Return the connection of a person, the same for all pages and requests."""
    return f"operator:{name}"


def process_connection(kind: str) -> str:
    """Return the connection of this process."""
    return f"{kind}:{_process()}"


def of_its_own(kind: str) -> str:
    """Return the name of a new connection, such as a socket."""
    return f"{kind}:{secrets.token_hex(8)}"


@cache
def _process() -> str:
    return f"{os.getpid()}-{secrets.token_hex(4)}"  # numbers come again, and other machines have the same


LASTING = ("stdio:", "mcp:")  # connections of one client, which last; whoever holds a key may be several
MOST_JOINED = 10_000  # connections that are remembered, the latest


class Joined(NamedTuple):
    """The agent of a connection, its project and its session there."""

    agent_id: str
    project_root: str
    session_id: str = ""  # unknown where an earlier version passed it on


_joined: OrderedDict[str, Joined] = OrderedDict()
_lock = Lock()


def remember(connection: str | None, joined: Joined) -> None:
    """Remember the agent and the project of a connection in this process."""
    if connection is None or not connection.startswith(LASTING):
        return
    with _lock:
        _joined[connection] = joined
        _joined.move_to_end(connection)
        if len(_joined) > MOST_JOINED:
            _joined.popitem(last=False)


def joined_as(connection: str | None) -> Joined | None:
    """Return the agent and the project of a connection, if this process remembers them."""
    return _joined.get(connection or "")
