"""What needs a person, by kind: the whole of it counted, some of it shown, the way to act beside each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from coordination.presence import AgentState, agent_states
from core.clock import now
from dashboard.page import render
from dashboard.templatetags.nexus import plain, short
from handoffs import attention as facts
from inbox import monitoring as inbox_monitoring
from inbox.monitoring import Inbox

EACH = 3  # of one kind on Home, so that one flood does not hide the others
LISTED = 200  # of one kind on the page of its own
LOOKS = {  # title and icon of each kind
    facts.Kind.DISK: ("The disk", "hard_drive"),
    facts.Kind.DEAD_LETTERS: ("Dead letters", "unsubscribe"),
    facts.Kind.ORPHANS: ("Handoffs that nobody may take", "person_off"),
    facts.Kind.LEASES: ("Leases that end", "timer"),
    facts.Kind.DEBTS: ("Owes, and does nothing", "hourglass_bottom"),
    facts.Kind.ANSWERS: ("Answers", "mark_chat_unread"),
    facts.Kind.SILENT: ("Away, with unread mail", "mark_email_unread"),
}


@dataclass(frozen=True)
class Need:
    """One thing to look at: about what, since or until when, and the way to act."""

    title: str
    detail: str
    since: datetime | None
    until: datetime | None
    action: str
    url: str


@dataclass(frozen=True)
class Kind:
    """All needs of a kind: how many there are, and those that are shown."""

    name: str  # its anchor on the page
    title: str
    icon: str
    count: int
    needs: list[Need]
    tone: str  # warn, bad
    or_more: bool  # not every row was examined

    @property
    def hidden(self) -> bool:
        """Whether there are more than are shown."""
        return self.or_more or self.count > len(self.needs)


def attention(request: HttpRequest) -> TemplateResponse:
    """Everything that needs a person, grouped."""
    moment = now()
    kinds = needs(moment, agent_states(moment), inbox_monitoring.inboxes(moment), LISTED)
    return render(request, "attention", "Needs a person", kinds=kinds)


def needs(moment: datetime, agents: Sequence[AgentState], inboxes: Mapping[str, Inbox], each: int = EACH) -> list[Kind]:
    """What needs a person now, as the pages show it."""
    return [
        Kind(
            group.kind.value,
            *LOOKS[group.kind],
            group.count,
            [_shown(group.kind, need) for need in group.needs],
            "bad" if group.bad else "warn",
            group.or_more,
        )
        for group in facts.groups(moment, agents, inboxes, each)
    ]


def _shown(kind: facts.Kind, need: facts.Need) -> Need:
    detail = plain(need.detail)
    if kind in (facts.Kind.ORPHANS, facts.Kind.LEASES):
        detail = f"{short(need.subject)} {detail}"
    return Need(plain(need.title), detail, need.since, need.until, *_way(kind, need.subject))


def _way(kind: facts.Kind, subject: str) -> tuple[str, str]:
    """The action, and where it is done."""
    match kind:
        case facts.Kind.DISK:
            return "Prune", reverse("admin:retention")
        case facts.Kind.DEAD_LETTERS:
            return "Read and answer", _mail(lane="parked", m=subject)
        case facts.Kind.ORPHANS:
            return "Look or cancel", reverse("admin:handoff", args=[subject])
        case facts.Kind.LEASES:
            return "Look", reverse("admin:handoff", args=[subject])
        case facts.Kind.DEBTS:
            return "Look", reverse("admin:agent", args=[subject])
        case facts.Kind.ANSWERS:
            return "Read", _mail(agent=subject, lane="unread")
        case facts.Kind.SILENT:
            return "See its mail", reverse("admin:agent_mail", args=[subject])


def _mail(**query: str) -> str:
    return f"{reverse('admin:mail')}?{urlencode(query)}"
