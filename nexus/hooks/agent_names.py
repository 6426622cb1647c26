"""The agent ids that `nexus setup` gives to a project's clients, such as `claude@shop`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from coordination.models import Session
from nexus.core.database.store import is_made
from nexus.hooks.harness import derived_id, name_of
from nexus.hooks.setup_record import Record, readable


def assign(home: Path, record: Record, clients: Sequence[str]) -> None:
    """Give an agent id to each of the clients that has none in the project of this record."""
    set_up = {client for written in record.files.values() for _, client in written.parts}
    others = {
        agent_id
        for _, other in readable(home)
        if other.project_root != record.project_root
        for agent_id in other.agents.values()
    }
    for client in clients:
        if client in set_up:  # by a version that made the id of client and project
            record.agents.setdefault(client, derived_id(client, record.project_root))
        elif client not in record.agents:
            record.agents[client] = next(
                each
                for each in _candidates(client, record.project_root)
                if each not in others and not _is_taken(each, record.project_root)
            )


def _candidates(client: str, root: str) -> Iterator[str]:
    name = f"{client.removesuffix('-code')}@{name_of(root)}"
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def _is_taken(agent_id: str, root: str) -> bool:
    """Return whether an agent of this id works in other projects, and not in this one: a store may be shared."""
    if not is_made():
        return False
    sessions = Session.objects.filter(agent_id=agent_id)
    return sessions.exists() and not sessions.filter(workspace__root_realpath=root).exists()
