"""What needs a person: the facts. A page or a command adds the way to act."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from coordination.presence import AgentState, Presence
from coordination.routing import in_words
from core.access import OPERATOR_AGENT
from core.database import store
from core.database.base import DISK_LOW
from handoffs import monitoring
from inbox.monitoring import Inbox

SOON = timedelta(seconds=60)  # a lease that ends within this is worth a look
EACH = 5  # of one kind, so that one flood does not hide the others
COUNTED = 50  # handoffs that nobody may claim, at most


class Kind(StrEnum):
    """What there is to look at; `subjects` are ids of what is named here."""

    DISK = "disk"  # nothing
    DEAD_LETTERS = "dead_letters"  # the agent whose they are
    ORPHANS = "orphans"  # handoffs
    LEASE = "lease"  # a handoff
    MAIL = "mail"  # the operators' own agent
    SILENT = "silent"  # an agent


@dataclass(frozen=True)
class Need:
    """One thing to look at: what it is, how many there are, about what, since when."""

    kind: Kind
    tone: str  # bad, warn
    title: str
    detail: str
    count: int = 1
    subjects: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None


def needs(moment: datetime, agents: Sequence[AgentState], inboxes: Mapping[str, Inbox]) -> list[Need]:
    """Everything that needs a person now, the worst first. Its texts hold agents' words as they are."""
    found = [
        *_disk(),
        *_dead_letters(inboxes),
        *_orphans(moment),
        *_leases(moment),
        *_mail(inboxes),
        *_silent(agents, inboxes),
    ]
    return sorted(found, key=lambda need: need.tone != "bad")


def _disk() -> Iterator[Need]:
    if (used := store().disk_used()) >= DISK_LOW:
        yield Need(Kind.DISK, "bad", "The disk is almost full", f"{used:.0%} used")


def _dead_letters(inboxes: Mapping[str, Inbox]) -> Iterator[Need]:
    for agent_id, inbox in sorted(inboxes.items()):
        if inbox.parked:
            detail = f"{inbox.parked} handed out again and again, never acknowledged"
            yield Need(Kind.DEAD_LETTERS, "bad", f"Dead letters of {agent_id}", detail, inbox.parked, (agent_id,))


def _orphans(moment: datetime) -> Iterator[Need]:
    if orphans := monitoring.orphaned(moment, COUNTED):
        oldest = orphans[0]
        yield Need(
            Kind.ORPHANS,
            "warn",
            "Nobody may take a handoff" if len(orphans) == 1 else f"Nobody may take {len(orphans)} handoffs",
            f"{oldest.handoff_id} for {in_words(oldest.target)[:120]}",
            len(orphans),
            [handoff.handoff_id for handoff in orphans],
            oldest.created_at,
        )


def _leases(moment: datetime) -> Iterator[Need]:
    for handoff in monitoring.expiring(moment, SOON, EACH):
        yield Need(
            Kind.LEASE,
            "warn",
            f"The lease of {handoff.claimed_by} is about to end",
            f"handoff {handoff.handoff_id}",
            subjects=(handoff.handoff_id,),
            since=handoff.updated_at,
            until=handoff.lease_expires_at,
        )


def _mail(inboxes: Mapping[str, Inbox]) -> Iterator[Need]:
    mine = inboxes.get(OPERATOR_AGENT, Inbox())
    if mine.unread:
        detail = f"{mine.unread} unread"
        yield Need(Kind.MAIL, "warn", "Agents wrote to you", detail, mine.unread, (OPERATOR_AGENT,), mine.oldest_unread)


def _silent(agents: Sequence[AgentState], inboxes: Mapping[str, Inbox]) -> Iterator[Need]:
    waiting = [
        (state, inboxes[state.agent_id])
        for state in agents
        if state.presence is not Presence.PRESENT
        and state.agent_id != OPERATOR_AGENT
        and inboxes.get(state.agent_id, Inbox()).unread
    ]
    for state, inbox in sorted(waiting, key=lambda pair: -pair[1].unread)[:EACH]:
        title, detail = f"{state.agent_id} is {state.presence} with unread mail", f"{inbox.unread} unread"
        yield Need(Kind.SILENT, "warn", title, detail, inbox.unread, (state.agent_id,), inbox.oldest_unread)
