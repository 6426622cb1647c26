"""Keep agents present as long as their connections are open: they may think for minutes between two calls."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from coordination.services import sessions
from nexus.core.background_work import BackgroundWork
from nexus.core.config import CoreSettings
from nexus.core.operations.caller import joined_as
from nexus.core.operations.registry import Operation
from nexus.hooks import client_processes

# On the event loop alone.
_open: Counter[str] = Counter()  # by connection, its streams and calls under way
_agents: dict[str, str] = {}  # by open connection, the agent of its key, or else the one that acted on it last
_sessions: dict[str, str] = {}  # by open connection, the session that was opened on it last


class Present(NamedTuple):
    """The agents with an open connection, and their sessions there."""

    agents: set[str]
    sessions: set[str]


@contextmanager
def connected(connection: str | None, agent_id: str | None = None) -> Iterator[None]:
    """Count a connection as open inside the block, as one of the agent to which a key binds it; None is no
    connection."""
    if connection is None:
        yield
        return
    _open[connection] += 1
    if agent_id is not None:
        _works_on(connection, agent_id)
    try:
        yield
    finally:
        _open[connection] -= 1
        if not _open[connection]:
            del _open[connection]
            _agents.pop(connection, None)
            _sessions.pop(connection, None)


def acted(
    connection: str | None, operation: Operation[Any], arguments: Mapping[str, Any] | None, data: Mapping[str, Any]
) -> None:
    """Note which agent acted on an open connection, by a call that succeeded, and the session that it opened."""
    if connection is None or connection not in _open or operation.acts_as is None:
        return
    agent_id = (arguments or {}).get(operation.acts_as)
    if agent_id is not None:
        _works_on(connection, agent_id)
    if operation.name == "session_open":
        _sessions[connection] = data["session_id"]


def _works_on(connection: str, agent_id: str) -> None:
    """Note an agent's work, also under the client whose process serves it on stdio."""
    if _agents.get(connection) == agent_id:
        return
    _agents[connection] = agent_id
    process = re.match(r"stdio:(\d+)-", connection)
    if process:
        with suppress(OSError):  # the guard then knows less
            client_processes.note(CoreSettings.current().home, int(process[1]), agent_id)


def agent_on(connection: str | None) -> str | None:
    """Return the agent that joined on a connection, or acted on it last; None if none did."""
    joined = joined_as(connection)
    return joined.agent_id if joined else _agents.get(connection or "")


def session_on(connection: str | None) -> str | None:
    """Return the session of the agent on a connection; None if it has none there."""
    joined = joined_as(connection)
    return joined.session_id if joined else _sessions.get(connection or "")


class Presence(BackgroundWork[Present, None]):
    """Note that the agents of open connections are there, and renew the heartbeats of their sessions."""

    name = "presence"
    tick_seconds = 10.0

    def queues(self) -> Sequence[str]:
        return ["connections"] if _open else []

    def claim(self, queue: str) -> Present:
        present = Present(set(), {*_sessions.values()})
        for each in [*_open]:
            if agent_id := agent_on(each):
                present.agents.add(agent_id)
            if session_id := session_on(each):
                present.sessions.add(session_id)
        return present

    def act(self, item: Present) -> None:
        if item.agents:
            sessions.keep_present(item.agents, item.sessions)

    def given_up(self, item: Present, why: str) -> None:
        """Go on: nothing was claimed, and what is due is found again."""

    def settle(self, item: Present, outcome: None) -> bool:
        return False  # once per tick


PRESENCE = Presence()
