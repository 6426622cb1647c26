"""What needs a person, by kind: the facts. A page or a command adds the way to act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from coordination import debts
from coordination.presence import AgentState, Presence
from coordination.routing import in_words
from core.database import store
from core.database.base import DISK_LOW
from core.operations.caller import OPERATOR_AGENT
from handoffs import monitoring
from handoffs.debts import patience
from handoffs.models import Handoff
from inbox.monitoring import Inbox, dead_letters

SOON = timedelta(seconds=60)  # a lease that ends within this is worth a look


class Kind(StrEnum):
    """What there is to look at, the worst first."""

    DISK = "disk"
    DEAD_LETTERS = "dead-letters"
    ORPHANS = "orphans"  # handoffs that nobody may take
    LEASES = "leases"  # that are about to end
    DEBTS = "debts"  # agents that are there, do nothing, and owe work they took
    ANSWERS = "answers"  # mail to the operators
    SILENT = "silent"  # agents away, with unread mail


@dataclass(frozen=True)
class Need:
    """One thing to look at: about what, since or until when. Its texts hold agents' words as they are."""

    title: str
    detail: str
    subject: str = ""  # the id of the message, handoff or agent it is about
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class Group:
    """All needs of a kind: how many there are, and some of them."""

    kind: Kind
    count: int
    needs: Sequence[Need]
    bad: bool = False  # else a warning
    or_more: bool = False  # not every row was examined
    by_agent: Mapping[str, int] = field(default_factory=dict)  # whose they are, where that matters


def groups(moment: datetime, agents: Sequence[AgentState], inboxes: Mapping[str, Inbox], each: int = 3) -> list[Group]:
    """What needs a person now, the worst kind first, without the kinds of which there is nothing; `each` are shown."""
    found = [
        _disk(),
        _dead_letters(inboxes, each),
        _orphans(moment, each),
        _leases(moment, each),
        _debts(agents, each),
        _answers(inboxes),
        _silent(agents, inboxes, each),
    ]
    return [group for group in found if group.count]


def _disk() -> Group:
    used = store().disk_used()
    low = used >= DISK_LOW
    return Group(Kind.DISK, int(low), [Need("The disk is almost full", f"{used:.0%} used")] if low else [], bad=True)


def _dead_letters(inboxes: Mapping[str, Inbox], each: int) -> Group:
    parked = {agent_id: inbox.parked for agent_id, inbox in sorted(inboxes.items()) if inbox.parked}
    found = [
        Need(
            f"Dead letter of {delivery.recipient_id}",
            f"{delivery.message.subject[:120]} – handed out {delivery.attempts} times, never acknowledged",
            delivery.message_id,
            delivery.created_at,
        )
        for delivery in (dead_letters(parked, each) if parked else [])
    ]
    return Group(Kind.DEAD_LETTERS, sum(parked.values()), found, bad=True, by_agent=parked)


def _orphans(moment: datetime, each: int) -> Group:
    orphans = monitoring.orphaned(moment, monitoring.EXAMINED)
    found = [
        Need(
            "Nobody may take a handoff",
            f"for {in_words(handoff.target)[:120]}",
            handoff.handoff_id,
            handoff.created_at,
        )
        for handoff in orphans[:each]
    ]
    unexamined = Handoff.objects.open().count() > monitoring.EXAMINED
    return Group(Kind.ORPHANS, len(orphans), found, or_more=unexamined)


def _leases(moment: datetime, each: int) -> Group:
    ending = monitoring.expiring(moment, SOON)
    found = [
        Need(
            f"The lease of {handoff.claimed_by} is about to end",
            "of a handoff",
            handoff.handoff_id,
            handoff.updated_at,
            handoff.lease_expires_at,
        )
        for handoff in ending[:each]
    ]
    return Group(Kind.LEASES, ending.count(), found)


def _debts(agents: Sequence[AgentState], each: int) -> Group:
    there = {state.agent_id for state in agents if state.presence is not Presence.OFFLINE}
    by_agent: dict[str, list[debts.Debt]] = {}
    for debt in debts.overdue(patience()):
        if debt.agent_id in there:
            by_agent.setdefault(debt.agent_id, []).append(debt)
    found = [
        Need(f"{agent_id} owes and does nothing", _owed(owed), agent_id, owed[0].since)
        for agent_id, owed in list(by_agent.items())[:each]
    ]
    return Group(Kind.DEBTS, len(by_agent), found)


def _owed(owed: Sequence[debts.Debt]) -> str:
    """The oldest debt, whom it is owed to, and how many more there are."""
    first, more = owed[0], len(owed) - 1
    to = f" to {first.to}" if first.to else ""
    return f"{first.what[:120]}{to}{f', and {more} more' if more else ''}"


def _answers(inboxes: Mapping[str, Inbox]) -> Group:
    mine = inboxes.get(OPERATOR_AGENT, Inbox())
    need = Need("Agents wrote to you", f"{mine.unread} unread", OPERATOR_AGENT, mine.oldest_unread)
    return Group(Kind.ANSWERS, int(mine.unread > 0), [need] if mine.unread else [])


def _silent(agents: Sequence[AgentState], inboxes: Mapping[str, Inbox], each: int) -> Group:
    waiting = [
        (state, inboxes[state.agent_id])
        for state in agents
        if state.presence is not Presence.PRESENT
        and state.agent_id != OPERATOR_AGENT
        and inboxes.get(state.agent_id, Inbox()).unread
    ]
    found = [
        Need(
            f"{state.agent_id} is {state.presence} with unread mail",
            f"{inbox.unread} unread",
            state.agent_id,
            inbox.oldest_unread,
        )
        for state, inbox in sorted(waiting, key=lambda pair: -pair[1].unread)[:each]
    ]
    return Group(Kind.SILENT, len(waiting), found)
