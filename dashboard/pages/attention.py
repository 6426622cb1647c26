"""What needs a person, as a short list with the action beside each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.urls import reverse
from django.utils.http import urlencode

from coordination.presence import AgentState, Presence
from core.access import OPERATOR_AGENT
from core.database import store
from core.database.base import DISK_LOW
from dashboard.templatetags.nexus import plain, short, target
from handoffs import monitoring as handoffs_overview
from handoffs.models import Handoff
from inbox import monitoring as mail_overview
from inbox.monitoring import Inbox

SOON = timedelta(seconds=60)  # a lease that ends within this is worth a look
EACH = 5  # of one kind, so that one flood does not hide the others


@dataclass(frozen=True)
class Need:
    """One thing to look at: what it is, about what, since when, and the way to act."""

    tone: str  # bad, warn
    icon: str
    title: str
    detail: str
    since: datetime | None
    action: str
    url: str
    until: datetime | None = None


def needs(moment: datetime, agents: list[AgentState], inboxes: dict[str, Inbox]) -> list[Need]:
    """Everything that needs a person now, the worst first."""
    found = [
        *_disk(),
        *_dead_letters(inboxes),
        *_orphans(moment),
        *_leases(moment),
        *_answers(inboxes),
        *_silent(agents, inboxes),
    ]
    return sorted(found, key=lambda need: need.tone != "bad")


def _disk() -> Iterator[Need]:
    used = store().disk_used()
    if used >= DISK_LOW:
        yield Need(
            "bad",
            "hard_drive",
            "The disk is almost full",
            f"{used:.0%} used",
            None,
            "Prune",
            reverse("admin:retention"),
        )


def _dead_letters(inboxes: dict[str, Inbox]) -> Iterator[Need]:
    parked = [agent_id for agent_id, inbox in inboxes.items() if inbox.parked]
    for delivery in mail_overview.dead_letters(parked, EACH) if parked else []:
        yield Need(
            "bad",
            "unsubscribe",
            f"Dead letter of {plain(delivery.recipient_id)}",
            f"{plain(delivery.message.subject)[:120]} – handed out {delivery.attempts} times, never acknowledged",
            delivery.created_at,
            "Read and answer",
            f"{reverse('admin:mail')}?{urlencode({'lane': 'parked', 'm': delivery.message_id})}",
        )


def _orphans(moment: datetime) -> Iterator[Need]:
    for handoff in handoffs_overview.orphaned(moment, EACH):
        yield Need(
            "warn",
            "person_off",
            "Nobody may take a handoff",
            f"{short(handoff.handoff_id)} for {plain(target(handoff.target))[:120]}",
            handoff.created_at,
            "Look or cancel",
            _handoff(handoff),
        )


def _leases(moment: datetime) -> Iterator[Need]:
    for handoff in handoffs_overview.expiring(moment, SOON, EACH):
        yield Need(
            "warn",
            "timer",
            f"The lease of {plain(handoff.claimed_by)} is about to end",
            f"handoff {short(handoff.handoff_id)}",
            handoff.updated_at,
            "Look",
            _handoff(handoff),
            until=handoff.lease_expires_at,
        )


def _answers(inboxes: dict[str, Inbox]) -> Iterator[Need]:
    mine = inboxes.get(OPERATOR_AGENT, Inbox())
    if mine.unread:
        where = f"{reverse('admin:mail')}?{urlencode({'agent': OPERATOR_AGENT, 'lane': 'unread'})}"
        yield Need(
            "warn",
            "mark_chat_unread",
            "Agents wrote to you",
            f"{mine.unread} unread",
            mine.oldest_unread,
            "Read",
            where,
        )


def _silent(agents: list[AgentState], inboxes: dict[str, Inbox]) -> Iterator[Need]:
    waiting = [
        (state, inboxes[state.agent_id])
        for state in agents
        if state.presence is not Presence.PRESENT
        and state.agent_id != OPERATOR_AGENT
        and inboxes.get(state.agent_id, Inbox()).unread
    ]
    for state, inbox in sorted(waiting, key=lambda pair: -pair[1].unread)[:EACH]:
        yield Need(
            "warn",
            "mark_email_unread",
            f"{plain(state.agent_id)} is {state.presence} with unread mail",
            f"{inbox.unread} unread",
            inbox.oldest_unread,
            "See its mail",
            reverse("admin:agent_mail", args=[state.agent_id]),
        )


def _handoff(handoff: Handoff) -> str:
    return reverse("admin:handoff", args=[handoff.handoff_id])
