"""The life of handoffs as spans of time, from their events. Total functions over plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Doing(StrEnum):
    """The kinds of spans."""

    WAITING = "waiting"  # open: nobody has it
    CLAIMED = "claimed"  # an agent has it
    WORKING = "working"  # and said that it works on it
    BLOCKED = "blocked"  # and said that it cannot go on
    CHECKING = "checking"  # submitted: its verifier has yet to look


HELD = frozenset({Doing.CLAIMED, Doing.WORKING, Doing.BLOCKED})

# What a step of the log begins; None settles it, and a step that is not named here changes nothing.
BEGINS: Mapping[str, Doing | None] = {
    "handoff.created": Doing.WAITING,
    "handoff.claimed": Doing.CLAIMED,
    "handoff.started": Doing.WORKING,
    "handoff.blocked": Doing.BLOCKED,
    "handoff.submitted": Doing.CHECKING,
    "handoff.returned": Doing.CLAIMED,  # by its verifier, to who did it
    "handoff.expired": Doing.WAITING,  # the lease of its holder
    "handoff.released": Doing.WAITING,  # by an operator
    "handoff.reassigned": Doing.WAITING,
    "handoff.restored": Doing.CLAIMED,  # to whom it was taken from
    "handoff.timed_out": None,
    "handoff.accepted": None,
    "handoff.completed": None,
    "handoff.rejected": None,
    "handoff.cancelled": None,
}
# What one must have been before a step that is the first one known, where that was not waiting; None: who knows whose.
BEFORE: Mapping[str, Doing | None] = {
    **dict.fromkeys(("handoff.started", "handoff.blocked", "handoff.submitted", "handoff.completed"), Doing.CLAIMED),
    **dict.fromkeys(("handoff.accepted", "handoff.returned"), Doing.CHECKING),
    **dict.fromkeys(("handoff.expired", "handoff.released", "handoff.reassigned")),
}


class HandoffEvent(NamedTuple):
    """An event of a handoff."""

    handoff_id: str
    type: str
    actor: str | None
    at: datetime
    event_id: int


class Span(NamedTuple):
    """A handoff was in one state, with one agent, from `start` (None: before what is known) to `end` (None: still).

    `event_id` is the event that began it, or 0 when unknown; `ended_by` is the type of the event that ended it.
    """

    handoff_id: str
    doing: Doing
    agent_id: str | None  # who held it; None while nobody did
    start: datetime | None
    end: datetime | None
    event_id: int
    ended_by: str | None = None

    @property
    def key(self) -> str:
        """The id of the handoff."""
        return self.handoff_id


def spans(steps: Iterable[HandoffEvent], lapsed: Mapping[str, datetime] | None = None) -> list[Span]:
    """Return the spans of a series of events in the order of the log, which may mix several handoffs.

    `lapsed` maps handoffs to leases that expired without a record yet: the claim ends there, and the handoff waits.
    """
    running: dict[str, Span] = {}
    holders: dict[str, str | None] = {}  # who had each last
    found: list[Span] = []
    for step in steps:
        if step.type not in BEGINS:
            continue
        former = running.pop(step.handoff_id, None)
        if step.handoff_id not in holders:
            former = _unknown(step)
            holders[step.handoff_id] = former.agent_id if former else None
        if former is not None:
            found.append(_ended(former, step.at, step.type))
        if step.type == "handoff.claimed":
            holders[step.handoff_id] = step.actor
        if (doing := BEGINS[step.type]) is not None:
            agent = holders[step.handoff_id] if doing in HELD else None
            running[step.handoff_id] = Span(step.handoff_id, doing, agent, step.at, None, step.event_id)
    for span in running.values():
        ran_out = (lapsed or {}).get(span.handoff_id) if span.doing in HELD else None
        if ran_out is None:
            found.append(span)
        else:
            found.append(_ended(span, ran_out, "handoff.expired"))
            found.append(Span(span.handoff_id, Doing.WAITING, None, ran_out, None, 0))
    return found


def _ended(span: Span, at: datetime, by: str) -> Span:
    return Span(span.handoff_id, span.doing, span.agent_id, span.start, at, span.event_id, by)


def _unknown(step: HandoffEvent) -> Span | None:
    """Return the span that must have come before a first known event; None where that event is the creation."""
    doing = BEFORE.get(step.type, Doing.WAITING)
    if step.type == "handoff.created" or doing is None:
        return None
    return Span(step.handoff_id, doing, step.actor if doing in HELD else None, None, None, 0)
