"""The admin's record of agents. It spans apps: presence, mail, work and keys.

Django imports this as every process starts: what imports the pool itself is imported when a page needs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from coordination import debts, presence
from coordination.admin import WorkspaceFilter, audience, limits_in_words
from coordination.forms import NewAgentForm
from coordination.log.selectors import events_by
from coordination.log.sentences import lines, without_quiet
from coordination.models import Agent, AgentKey, AgentLimits, LimitScope
from coordination.routing import capability_set
from handoffs import selectors as handoffs_selectors
from inbox import monitoring
from inbox.monitoring import Inbox
from nexus.core.clock import now
from nexus.core.operations.registry import Operation
from nexus.web import records
from nexus.web.forms import OperationForm
from nexus.web.page import posted
from nexus.web.records import NONE, OperationAdmin, column, link, moment
from nexus.web.templatetags.nexus import plain, readable, state, when

SHOWN = 10  # handoffs, and events
EXAMINED = 100  # events, searched for those that are no signs of life
DEBTS = {  # the page of each kind
    "handoff": "handoffs_handoff_change",
    "verdict": "handoffs_handoff_change",
    "message": "inbox_message_change",
    "task": "planning_task_change",
    "task_verdict": "planning_task_change",
    "question": "files_reservation_change",
}
ELSEWHERE: tuple[tuple[str, str, str, dict[str, str]], ...] = (  # what pages show of one agent
    ("Mail", "inbox_message_changelist", "agent", {}),
    ("Compose", "speak", "to", {}),
    ("Events", "coordination_event_changelist", "agent", {}),
    ("Its last day", "timeline", "agent", {"window": "1d"}),
    ("On the graph", "graph", "agent", {}),
)


class ThereFilter(WorkspaceFilter):
    """Filter by workspace: the agents that have, or had, a session there."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Agent]) -> QuerySet[Agent]:
        there = self.value()
        return queryset.filter(pk__in=presence.agents_in(there)) if there else queryset


@admin.register(Agent)
class AgentAdmin(OperationAdmin):
    intro = "Who is in the team: what each agent does now, its mail, its profile and its key."
    list_display_links = None  # the first column is the link
    list_display = ("who", "role_of", "skills", "present", "mail", "key_state", "acted")
    list_filter = (ThereFilter,)
    search_fields = ("agent_id", "role", "capabilities")
    search_help_text = "An id, a role or a capability"
    ordering = ("agent_id",)
    sortable_by = ("who",)
    operations = ("message_create", "agent_mute", "agent_delete")
    creates = "agent_create"
    fieldsets = (
        (None, {"fields": ("present", "does", "works_on", "owes", "mail", "handed_over", "acted", "doings")}),
        ("Sessions", {"fields": ("sessions", "heartbeat", "muted")}),
        ("Profile", {"fields": ("role_of", "skills", "tags_of", "toolsets_of", "about", "registered")}),
        ("Access", {"fields": ("key_of", "limits")}),
    )
    readonly_fields = tuple(name for _, part in fieldsets for name in part["fields"])

    def get_queryset(self, request: HttpRequest) -> QuerySet[Agent]:
        """Return the team; a page also shows an agent that was deleted."""
        return Agent.objects.all() if request.path.endswith("/coordination/agent/") else Agent.everyone.all()

    def completed(self, rows: list[Agent]) -> list[Agent]:
        from nexus.control.permissions import members

        names, time = [row.pk for row in rows], now()
        inboxes = monitoring.inboxes(time, names)
        keys = {key.agent_id: key for key in AgentKey.objects.filter(agent__in=names)}
        pool = members.names()
        for row, found in zip(rows, presence.states_of(rows, time), strict=True):
            inbox = inboxes.get(row.pk, Inbox())
            vars(row).update(state=found, inbox=inbox, shown_key=keys.get(row.pk), in_pool=row.pk in pool)
        return rows

    def operations_on(self, row: Any) -> list[str]:
        if row.deleted_at:
            return []
        key = row.shown_key
        admitted = {
            "agent_update": True,
            "message_create": True,
            "agent_mute": not row.in_pool,
            "agent_key_issue": True,
            "agent_key_set_active:off": key and key.is_active,
            "agent_key_set_active:on": key and not key.is_active,
            "limits_update:agent": True,
            "agent_delete": True,
        }
        return [name for name, admits in admitted.items() if admits]

    def links_on(self, row: Agent) -> list[tuple[str, str]]:
        from nexus.control.permissions import members

        member = members.find(row.pk)
        pool = [("In the pool", reverse("admin:pool_agent", args=[member.pk]))] if member else []
        return pool + [
            (label, f"{reverse(f'admin:{page}')}?{urlencode({of: row.pk, **more})}")
            for label, page, of, more in ELSEWHERE
        ]

    def form_to_add(self, request: HttpRequest, operation: Operation[Any]) -> OperationForm:
        return NewAgentForm(posted(request))

    def added(self, request: HttpRequest, data: dict[str, Any]) -> HttpResponse:
        from nexus.dashboard.views.agents import key_page

        return key_page(request, data)

    who = column("Agent", lambda row: link("agent", row.pk, row.pk), ordering="agent_id")
    role_of = column("Role", lambda row: records.text(row.role) if row.role else NONE)
    skills = column(
        "Capabilities", lambda row: records.text(", ".join(sorted(capability_set(row.capabilities))) or NONE)
    )
    acted = column("Last act", lambda row: when(row.state.last_act, "ago"))

    @admin.display(description="Presence")
    def present(self, row: Any) -> SafeString:
        return render_to_string("dashboard/presence.html", {"state": row.state, "in_pool": row.in_pool})

    @admin.display(description="Inbox")
    def mail(self, row: Any) -> SafeString:
        held = ((row.inbox.in_flight, "being handled"), (row.inbox.parked, "dead letters"))
        words = [f"{row.inbox.unread} unread", *(f"{count} {what}" for count, what in held if count)]
        return format_html("{}", link("inbox_message_changelist", ", ".join(words), agent=row.pk))

    @admin.display(description="Key")
    def key_state(self, row: Any) -> str:
        if row.shown_key is None:
            return "none"
        return "active" if row.shown_key.is_active else "deactivated"

    @admin.display(description="What it does")
    def does(self, row: Any) -> SafeString | str:
        found = row.state.activity
        if found is None:
            return NONE
        return format_html("{}, since {}: {}", found.title, when(found.since, "ago"), plain(found.evidence))

    @admin.display(description="Works on")
    def works_on(self, row: Agent) -> SafeString | str:
        from nexus.dashboard.views.agents import works

        doing = works(now(), row.pk)[row.pk]
        return _below(render_to_string("dashboard/doing.html", {"doing": each}) for each in doing)

    @admin.display(description="Handed over, not finished")
    def handed_over(self, row: Agent) -> SafeString | str:
        return _below(
            format_html(
                "{} ({}, {} {})",
                link("handoffs_handoff_change", each.title, each.pk),
                state(each.status),
                *(("with", records.text(each.claimed_by)) if each.claimed_by else ("for", audience(each.target))),
            )
            for each in handoffs_selectors.offered_by(row.pk, SHOWN)
        )

    @admin.display(description="Must still do")
    def owes(self, row: Agent) -> SafeString | str:
        return _below(
            format_html(
                "{}{}, {}",
                link(DEBTS[debt.kind], debt.what, debt.identifier),
                f" to {plain(debt.to)}" if debt.to else "",
                when(debt.since, "ago"),
            )
            for debt in debts.owed_by(row.pk)
        )

    @admin.display(description="Latest events")
    def doings(self, row: Agent) -> SafeString | str:
        found = lines(without_quiet(events_by(row.pk, EXAMINED))[:SHOWN])
        told = ((render_to_string("coordination/sentence.html", {"parts": each.parts}), each.event) for each in found)
        return _below(format_html("{} ({})", sentence, when(event.created_at, "ago")) for sentence, event in told)

    @admin.display(description="Sessions")
    def sessions(self, row: Any) -> SafeString:
        page = link("coordination_session_changelist", "all", agent__agent_id__exact=row.pk)
        return format_html("{} active; {}", row.state.sessions, page)

    heartbeat = column("Last heartbeat", lambda row: when(row.state.heartbeat, "ago"))
    muted = column(
        "Muted until", lambda row: moment(row.muted_until) if row.muted_until and row.muted_until > now() else NONE
    )
    tags_of = column("Tags", lambda row: readable(row.tags))
    toolsets_of = column("Toolsets", lambda row: records.text(", ".join(row.toolsets)) if row.toolsets else "as usual")
    about = column("Metadata", lambda row: readable(row.metadata))
    registered = column("Registered", lambda row: moment(row.created_at))

    @admin.display(description="API key")
    def key_of(self, row: Any) -> SafeString | str:
        if row.deleted_at:
            return "It is no longer in the team, and its key does not work. Add an agent with its id to bring it back."
        if row.shown_key is None:
            return "It has none: it can connect over stdio only."
        return format_html("{}, issued {}", self.key_state(row), moment(row.shown_key.created_at))

    @admin.display(description="Limits of its own")
    def limits(self, row: Agent) -> str:
        own = AgentLimits.objects.filter(scope=LimitScope.AGENT, name=row.pk).first()
        return limits_in_words(own) if own else NONE


def _below(parts: Iterable[SafeString]) -> SafeString | str:
    return format_html_join("", "<div>{}</div>", ((part,) for part in parts)) or NONE


def agent(request: HttpRequest, agent_id: str) -> HttpResponse:
    """Show the page of an agent at its short address, which takes any id."""
    return admin.site.get_model_admin(Agent).change_view(request, quote(agent_id))
