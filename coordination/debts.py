"""Debts: work that agents took and have not finished, and answers that they owe. Each app registers its own kinds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from typing_extensions import TypedDict

from coordination.log.selectors import first_event_at
from coordination.models import Event
from nexus.core.clock import iso, now
from nexus.core.operations.parameters import Time

SHOWN = 100  # the most debts that one agent gets at once


@dataclass(frozen=True)
class Debt:
    """One piece of work that an agent took and has not finished, or one question that it has not answered."""

    agent_id: str  # the agent that owes it
    kind: str  # handoff, message, task, verdict, task_verdict, question
    identifier: str
    what: str  # text of others, unchanged
    to: str | None  # the agent or operator that waits for it
    since: datetime
    workspace_id: str
    promised: bool = True  # false for work that returns by itself, such as mail: nobody needs a notice

    @property
    def key(self) -> str:
        """A unique key. The SQL in the apps' modules `hook` makes the same one."""
        return f"{self.kind} {self.identifier}"


Owed = Callable[[Collection[str] | None, datetime], Iterable[Debt]]

_registered: dict[str, Owed] = {}


def register(kind: str, owed: Owed) -> None:
    """Register the function that reads the debts of one kind, for some agents or for all, at a moment."""
    _registered[kind] = owed


def owed_by(agent_id: str) -> list[Debt]:
    """Return an agent's debts, oldest first, at most SHOWN."""
    return sorted(everything([agent_id]), key=lambda debt: debt.since)[:SHOWN]


def everything(agents: Collection[str] | None = None) -> Iterator[Debt]:
    """Yield the debts of some agents, or of all."""
    moment = now()
    for owed in _registered.values():
        yield from owed(agents, moment)


def overdue(after: timedelta) -> list[Debt]:
    """Return the debts older than `after` of agents that did nothing for as long, by agent and age.

    A heartbeat is not an act: an agent that only sends heartbeats looks available, but finishes nothing.
    """
    horizon = now() - after
    old = [debt for debt in everything() if debt.since <= horizon]
    busy = _active({debt.agent_id for debt in old}, horizon) if old else set()
    return sorted(
        (debt for debt in old if debt.agent_id not in busy), key=lambda debt: (debt.agent_id, debt.since, debt.key)
    )


def _active(agents: Collection[str], since: datetime) -> set[str | None]:
    """Return those of the agents that acted after `since`, heartbeats aside."""
    first = first_event_at(since + timedelta.resolution)  # events of the very moment of taking it do not count
    if first is None:
        return set()
    acts = Event.objects.filter(event_id__gte=first, actor_agent_id__in=agents)
    return set(acts.exclude(type="session.heartbeat").values_list("actor_agent_id", flat=True).distinct())


class DebtRow(TypedDict):
    """Work that an agent took and has not finished, or a question that it has not answered."""

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
