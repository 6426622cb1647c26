"""What needs a person, with the action beside each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse
from django.utils.http import urlencode

from coordination.presence import AgentState
from dashboard.templatetags.nexus import plain
from handoffs import attention
from handoffs.attention import Kind
from inbox.monitoring import Inbox


@dataclass(frozen=True)
class Need:
    """One thing to look at: what it is, about what, since when, and the way to act."""

    tone: str  # bad, warn
    icon: str
    title: str
    detail: str
    since: datetime | None
    until: datetime | None
    action: str
    url: str


ICONS = {
    Kind.DISK: "hard_drive",
    Kind.DEAD_LETTERS: "unsubscribe",
    Kind.ORPHANS: "person_off",
    Kind.LEASE: "timer",
    Kind.MAIL: "mark_chat_unread",
    Kind.SILENT: "mark_email_unread",
}


def needs(moment: datetime, agents: Sequence[AgentState], inboxes: Mapping[str, Inbox]) -> list[Need]:
    """Everything that needs a person now, the worst first."""
    return [
        Need(
            need.tone,
            ICONS[need.kind],
            plain(need.title),
            plain(need.detail),
            need.since,
            need.until,
            *_way(need),
        )
        for need in attention.needs(moment, agents, inboxes)
    ]


def _way(need: attention.Need) -> tuple[str, str]:
    """The action and where it is done."""
    match need.kind:
        case Kind.DISK:
            return "Prune", reverse("admin:retention")
        case Kind.DEAD_LETTERS:
            return "Read and answer", _mail(agent=need.subjects[0], lane="parked")
        case Kind.ORPHANS if need.count > 1:
            return "Look or cancel", reverse("admin:board")
        case Kind.ORPHANS:
            return "Look or cancel", reverse("admin:handoff", args=[need.subjects[0]])
        case Kind.LEASE:
            return "Look", reverse("admin:handoff", args=[need.subjects[0]])
        case Kind.MAIL:
            return "Read", _mail(agent=need.subjects[0], lane="unread")
        case Kind.SILENT:
            return "See its mail", reverse("admin:agent_mail", args=[need.subjects[0]])


def _mail(**query: str) -> str:
    return f"{reverse('admin:mail')}?{urlencode(query)}"
