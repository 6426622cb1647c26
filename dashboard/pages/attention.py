"""What needs a person, by kind: the whole of it counted, some of it shown, the way to act beside each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from coordination.presence import AgentState, Presence, agent_states
from core.access import OPERATOR_AGENT
from core.clock import now
from core.database import store
from core.database.base import DISK_LOW
from dashboard.page import render
from dashboard.templatetags.nexus import plain, short, target
from handoffs import monitoring as handoffs_overview
from handoffs.models import Handoff
from inbox import monitoring as mail_overview
from inbox.monitoring import Inbox

SOON = timedelta(seconds=60)  # a lease that ends within this is worth a look
EACH = 3  # of one kind on Home, so that one flood does not hide the others
LISTED = 200  # of one kind on the page of its own


@dataclass(frozen=True)
class Need:
    """One thing to look at: about what, since or until when, and the way to act."""

    title: str
    detail: str
    since: datetime | None
    action: str
    url: str
    until: datetime | None = None


@dataclass(frozen=True)
class Kind:
    """All needs of a kind: how many there are, and those that are shown."""

    name: str  # its anchor on the page
    title: str
    icon: str
    count: int
    needs: list[Need]
    tone: str = "warn"  # or bad
    or_more: bool = False  # not every row was examined

    @property
    def hidden(self) -> bool:
        """Whether there are more than are shown."""
        return self.or_more or self.count > len(self.needs)


def attention(request: HttpRequest) -> TemplateResponse:
    """Everything that needs a person, grouped."""
    moment = now()
    kinds = needs(moment, agent_states(moment), mail_overview.inboxes(moment), LISTED)
    return render(request, "attention", "Needs a person", kinds=kinds)


def needs(moment: datetime, agents: list[AgentState], inboxes: dict[str, Inbox], each: int = EACH) -> list[Kind]:
    """What needs a person now, the worst kind first, without the kinds of which there is nothing."""
    kinds = [
        _disk(),
        _dead_letters(inboxes, each),
        _orphans(moment, each),
        _leases(moment, each),
        _answers(inboxes),
        _silent(agents, inboxes, each),
    ]
    return [kind for kind in kinds if kind.count]


def _disk() -> Kind:
    used = store().disk_used()
    low = used >= DISK_LOW
    need = Need("The disk is almost full", f"{used:.0%} used", None, "Prune", reverse("admin:retention"))
    return Kind("disk", "The disk", "hard_drive", int(low), [need] if low else [], "bad")


def _dead_letters(inboxes: dict[str, Inbox], each: int) -> Kind:
    parked = {agent_id: inbox.parked for agent_id, inbox in inboxes.items() if inbox.parked}
    found = [
        Need(
            f"Dead letter of {plain(delivery.recipient_id)}",
            f"{plain(delivery.message.subject)[:120]} – handed out {delivery.attempts} times, never acknowledged",
            delivery.created_at,
            "Read and answer",
            f"{reverse('admin:mail')}?{urlencode({'lane': 'parked', 'm': delivery.message_id})}",
        )
        for delivery in (mail_overview.dead_letters(parked, each) if parked else [])
    ]
    return Kind("dead-letters", "Dead letters", "unsubscribe", sum(parked.values()), found, "bad")


def _orphans(moment: datetime, each: int) -> Kind:
    orphans = handoffs_overview.orphaned(moment, handoffs_overview.EXAMINED)
    found = [
        Need(
            "Nobody may take a handoff",
            f"{short(handoff.handoff_id)} for {plain(target(handoff.target))[:120]}",
            handoff.created_at,
            "Look or cancel",
            _handoff(handoff),
        )
        for handoff in orphans[:each]
    ]
    unexamined = Handoff.objects.open().count() > handoffs_overview.EXAMINED
    title = "Handoffs that nobody may take"
    return Kind("orphans", title, "person_off", len(orphans), found, or_more=unexamined)


def _leases(moment: datetime, each: int) -> Kind:
    ending = handoffs_overview.expiring(moment, SOON)
    found = [
        Need(
            f"The lease of {plain(handoff.claimed_by)} is about to end",
            f"handoff {short(handoff.handoff_id)}",
            handoff.updated_at,
            "Look",
            _handoff(handoff),
            until=handoff.lease_expires_at,
        )
        for handoff in ending[:each]
    ]
    return Kind("leases", "Leases that end", "timer", ending.count(), found)


def _answers(inboxes: dict[str, Inbox]) -> Kind:
    mine = inboxes.get(OPERATOR_AGENT, Inbox())
    where = f"{reverse('admin:mail')}?{urlencode({'agent': OPERATOR_AGENT, 'lane': 'unread'})}"
    need = Need("Agents wrote to you", f"{mine.unread} unread", mine.oldest_unread, "Read", where)
    return Kind("answers", "Answers", "mark_chat_unread", int(mine.unread > 0), [need] if mine.unread else [])


def _silent(agents: list[AgentState], inboxes: dict[str, Inbox], each: int) -> Kind:
    waiting = [
        (state, inboxes[state.agent_id])
        for state in agents
        if state.presence is not Presence.PRESENT
        and state.agent_id != OPERATOR_AGENT
        and inboxes.get(state.agent_id, Inbox()).unread
    ]
    found = [
        Need(
            f"{plain(state.agent_id)} is {state.presence} with unread mail",
            f"{inbox.unread} unread",
            inbox.oldest_unread,
            "See its mail",
            reverse("admin:agent_mail", args=[state.agent_id]),
        )
        for state, inbox in sorted(waiting, key=lambda pair: -pair[1].unread)[:each]
    ]
    return Kind("silent", "Away, with unread mail", "mark_email_unread", len(waiting), found)


def _handoff(handoff: Handoff) -> str:
    return reverse("admin:handoff", args=[handoff.handoff_id])
