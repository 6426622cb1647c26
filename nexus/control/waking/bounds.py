"""Limits that keep agents from waking one another for ever: the length of a chain, the rate, and the tokens."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F, Q, Sum

from nexus.control.config import ControlSettings
from nexus.control.events import emit_event
from nexus.control.models import HeldChoices, PoolAgent, Turn

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
LONGEST_LINE = 100  # turns that sent one another; more is a loop


def depth_after(sender: str | None, sent_at: datetime, resumed_at: datetime | None) -> int:
    """Return the depth in a chain of the turn that an item wakes: 1, unless a woken turn of its sender sent it, or a
    turn that such a turn had sent.

    An item that was sent before an operator resumed the agent starts a new chain.
    """
    if sender is None or (resumed_at is not None and sent_at < resumed_at):
        return 1
    depth = _depth_at(sender, sent_at)
    return LONGEST_LINE if depth is None else depth + 1


def is_loop(sender: str, moment: datetime) -> bool:
    """Return whether the agent's running turn was sent by a turn that another sent, and so on without an end."""
    return _depth_at(sender, moment) is None


def _depth_at(sender: str, moment: datetime) -> int | None:
    """Return the depth of the turn that an agent ran at a moment, or of the woken turn that it goes back to; None for a
    loop."""
    agent_id: str | None = sender
    begun = Q(started_at__lte=moment)
    for _ in range(LONGEST_LINE):
        at_work = Q(ended_at=None) | Q(ended_at__gte=moment)
        turns = Turn.objects.filter(at_work, begun, agent__agent_id=agent_id).order_by("-started_at")
        turn = turns.only("depth", "source_agent_id", "queued_at").first()
        if turn is None:
            return 0
        agent_id, moment = turn.source_agent_id, turn.queued_at
        if turn.depth or agent_id is None:
            return turn.depth
        begun = Q(started_at__lt=moment)  # an earlier turn
    return None


def bite(agent: PoolAgent, depth: int, moment: datetime) -> HeldChoices | None:
    """Return the limit that forbids to wake an agent now, for a turn of this depth; None if none does."""
    settings = ControlSettings.current()
    if depth > settings.pool_wake_depth:
        return HeldChoices.DEPTH
    woken = Turn.objects.filter(agent=agent, depth__gt=0, ended_at__gt=moment - MINUTE)  # all have ended: none is open
    if woken.filter(queued_at__gt=moment - MINUTE).count() >= settings.pool_wakes_a_minute:
        return HeldChoices.RATE
    budget = budget_of(agent)
    if budget and spent(agent, moment) >= budget:
        return HeldChoices.BUDGET
    return None


def budget_of(agent: PoolAgent) -> int:
    """Return the tokens that an agent's woken turns may take in a day; 0: no limit."""
    return ControlSettings.current().pool_wake_tokens if agent.wake_tokens is None else agent.wake_tokens


def spent(agent: PoolAgent, moment: datetime) -> int:
    """Return the tokens that an agent's woken turns took within a day, since an operator last resumed it."""
    since = max(moment - DAY, agent.resumed_at or agent.created_at)
    woken = Turn.objects.filter(agent=agent, depth__gt=0, ended_at__gte=since)
    return int(woken.aggregate(total=Sum(F("input_tokens") + F("output_tokens")))["total"] or 0)


def why_held(agent: PoolAgent) -> str:
    """Return, for operators, which limit keeps a held agent from being woken."""
    settings = ControlSettings.current()
    match agent.held_why:
        case HeldChoices.DEPTH:
            return f"agents woke one another {settings.pool_wake_depth} times in a chain (`pool_wake_depth`)"
        case HeldChoices.RATE:
            return f"it was woken {settings.pool_wakes_a_minute} times within a minute (`pool_wakes_a_minute`)"
        case _:
            return f"its woken turns took the {budget_of(agent):,} tokens of a day"


def hold(agent: PoolAgent, why: HeldChoices, moment: datetime) -> None:
    """Record, once, that a limit keeps the agent from being woken. Call it inside a transaction."""
    if agent.held_why != why:
        agent.held_why, agent.held_at = why, moment
        agent.save(update_fields=["held_why", "held_at"])
        emit_event("pool.held", None, agent, moment, why=why.value)


def let_go(agent: PoolAgent, by: str | None, moment: datetime) -> None:
    """Record that no limit holds the agent any more. Call it inside a transaction."""
    if agent.held_why is not None:
        agent.held_why = agent.held_at = None
        agent.save(update_fields=["held_why", "held_at"])
        emit_event("pool.resumed", by, agent, moment)
