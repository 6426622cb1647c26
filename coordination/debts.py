"""What agents owe: work they took and have not brought, and answers. The apps whose they are register here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from typing_extensions import TypedDict

from coordination.log.selectors import first_event_at
from coordination.models import Event
from nexus.core.clock import iso, now
from nexus.core.operations.shapes import Time

SHOWN = 100  # debts that one agent is told of at once


@dataclass(frozen=True)
class Debt:
    """One thing that an agent has and has not brought yet, or was asked and has not answered."""

    agent_id: str  # who owes it
    kind: str  # handoff, message, task, verdict, question
    identifier: str
    what: str  # others' words, as they are
    to: str | None  # who waits for it
    since: datetime
    workspace_id: str
    promised: bool = True  # by taking it on; else it comes again by itself, as mail does, and nobody need be told

    @property
    def key(self) -> str:
        """What tells it from others, also in the SQL of the modules `hook_queries`."""
        return f"{self.kind} {self.identifier}"


Owed = Callable[[Collection[str] | None, datetime], Iterable[Debt]]

_registered: dict[str, Owed] = {}


def register(kind: str, owed: Owed) -> None:
    """Name what reads the debts of a kind: of some agents, or of all, at a moment."""
    _registered[kind] = owed


def owed_by(agent_id: str) -> list[Debt]:
    """What an agent owes, oldest first."""
    return sorted(everything([agent_id]), key=lambda debt: debt.since)[:SHOWN]


def everything(agents: Collection[str] | None = None) -> Iterator[Debt]:
    """What some agents owe, or all of them."""
    moment = now()
    for owed in _registered.values():
        yield from owed(agents, moment)


def overdue(after: timedelta) -> list[Debt]:
    """What is owed for longer than `after` by agents that did nothing for as long, by agent and age.

    A heartbeat is a sign of life and no act: an agent that only sends these looks available, and brings nothing.
    """
    horizon = now() - after
    old = [debt for debt in everything() if debt.since <= horizon]
    busy = _active({debt.agent_id for debt in old}, horizon) if old else set()
    return sorted(
        (debt for debt in old if debt.agent_id not in busy), key=lambda debt: (debt.agent_id, debt.since, debt.key)
    )


def _active(agents: Collection[str], since: datetime) -> set[str | None]:
    """Those of some agents that an event tells of since then, heartbeats aside."""
    first = first_event_at(since + timedelta.resolution)  # what it took on at that moment was no act since
    if first is None:
        return set()
    acts = Event.objects.filter(event_id__gte=first, actor_agent_id__in=agents)
    return set(acts.exclude(type="session.heartbeat").values_list("actor_agent_id", flat=True).distinct())


class DebtRow(TypedDict):
    """What an agent has and has not brought yet, or was asked and has not answered."""

    kind: str
    id: str
    what: str
    to: str | None
    since: Time


def debt_row(debt: Debt) -> DebtRow:
    return {
        "kind": debt.kind,
        "id": debt.identifier,
        "what": debt.what[:200],
        "to": debt.to,
        "since": iso(debt.since),
    }
