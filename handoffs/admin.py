"""The admin's records of handoffs; the board shows the live ones."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from coordination.admin import InWorkspace, WorkspaceFilter, audience
from coordination.log.sentences import lines
from coordination.models import Event
from coordination.provenance import on_behalf_of, provenance_row, sender_in_words
from handoffs import check_runs, remarks
from handoffs.attention import VERBS, possible
from handoffs.lifecycle import describe_verifier
from handoffs.models import SETTLED, Handoff
from handoffs.offers import WAKES
from handoffs.selectors import check_runs_of, dependencies, state_at
from handoffs.timeline import spans_of
from nexus.core.clock import iso, now
from nexus.web import records
from nexus.web.records import NONE, column, link, moment
from nexus.web.templatetags.nexus import state as in_words

PAGE, EVENTS = "handoffs_handoff_change", "coordination_event_changelist"
HISTORY = 200  # events on a row's page


@admin.register(Handoff)
class HandoffAdmin(InWorkspace):
    list_display_links = None  # the work is the link
    list_display = ("work", "status", "sender", "audience", "holder", "leased", "workspace_link", "changed")
    list_filter = ("status", WorkspaceFilter)
    operations = tuple(VERBS.values())
    search_fields = ("title", "handoff_id", "from_agent_id", "claimed_by")
    ordering = ("-handoff_id",)  # as an index of each workspace has them
    sortable_by = ("work",)
    rare = (
        *("blocked", "holder", "leased", "deadline", "verified", "trace", "offered_again", "offered_before"),
        *("waits_for", "criteria", "checks"),
    )
    fieldsets = (
        (None, {"fields": (
            *("state", "blocked", "number", "sender", "creator", "audience", "visibility", "workspace_link"),
            *("holder", "leased", "deadline", "verified", "trace", "offered_again", "offered_before"),
            *("created", "changed", "on_timeline", "woke"),
        )}),
        ("Work", {"fields": ("content", "waits_for", "criteria")}),
        ("Outcome", {"fields": ("outcome", "checks")}),
        ("History", {"fields": ("history",)}),
    )  # fmt: skip
    readonly_fields = tuple(name for _, options in fieldsets for name in options["fields"])

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.defer("payload", "result") if request.path.endswith("/handoff/") else rows

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        if row := super().get_object(request, object_id, from_field):
            row.events = list(Event.objects.filter(handoff_id=row.pk).order_by("event_id")[:HISTORY])
        return row

    def operations_on(self, row: Handoff) -> list[str]:
        """Return what the lifecycle admits; work is offered again once."""
        again = {"handoff_reoffer"} if _named(row, "handoff.reoffered", "as") else set()
        return [each.operation for each in possible(state_at(row, now())) if each.operation not in again]

    work = column("Work", lambda row: link(PAGE, row.title, row.pk), ordering="handoff_id")
    number = column("Handoff", lambda row: records.text(row.pk))
    sender = column("From", lambda row: link("agent", row.from_agent_id, row.from_agent_id))
    creator = column("Its creator", lambda row: sender_in_words(provenance_row(row, on_behalf_of([row]))) + ".")
    audience = column("For", lambda row: audience(row.target))
    holder = column("Claimed by", lambda row: link("agent", row.claimed_by, row.claimed_by or ""))
    leased = column("Lease until", lambda row: moment(row.lease_expires_at))
    deadline = column("Deadline", lambda row: moment(row.deadline_at))
    verified = column(
        "Verified by", lambda row: records.text(describe_verifier(row.verifier)) if row.verifier else NONE
    )
    blocked = column("Blocked because", lambda row: records.lines(row.blocked_reason or NONE))
    changed = column("Changed", lambda row: moment(row.updated_at))
    content = column("Payload", lambda row: records.body(row.payload) if row.payload else NONE)

    criteria = column("Measured by", lambda row: records.each(row.acceptance_criteria))

    @admin.display(description="State")
    def state(self, row: Handoff) -> SafeString:
        lapsed = row.lease_expires_at is not None and row.lease_expires_at < now()
        return _badge("lapsed" if lapsed else state_at(row, now()))

    @admin.display(description="Trace")
    def trace(self, row: Handoff) -> str:
        return link(EVENTS, row.trace_id, trace=row.trace_id) if row.trace_id else NONE

    @admin.display(description="Offered again")
    def offered_again(self, row: Handoff) -> str:
        return link(PAGE, "as a new handoff", _named(row, "handoff.reoffered", "as"))

    @admin.display(description="Offered before")
    def offered_before(self, row: Handoff) -> str:
        return link(PAGE, "as the one before", _named(row, "handoff.created", "of"))

    @admin.display(description="On the timeline")
    def on_timeline(self, row: Handoff) -> str:
        about = {"workspace": row.workspace_id, "since": iso(row.created_at), "until": iso(row.updated_at)}
        return link("timeline", "What its agents did meanwhile", **about)

    @admin.display(description="Runs")
    def woke(self, row: Handoff) -> str:
        about = {"wakes__kind": WAKES.name, "wakes__item": row.pk}
        return link("control_turn_changelist", "Those of the pool that it woke", **about)

    @admin.display(description="Depends on")
    def waits_for(self, row: Handoff) -> str:
        found = ((link(PAGE, each.title, each.pk), _badge(state_at(each, now()))) for each in dependencies(row))
        return format_html_join("", '<div class="nx-bar">{} {}</div>', found) or NONE

    @admin.display(description="Checks")
    def checks(self, row: Handoff) -> str:
        found = check_runs.summaries(check_runs_of(row))
        return _drawn("check_runs", **found) if found["checks"] else NONE

    @admin.display(description="What happened")
    def history(self, row: Any) -> SafeString:
        """Return the events, below how long each state lasted."""
        moment = now()
        spans = [(span, (span.end or moment) - (span.start or moment)) for span in spans_of(row.pk)]
        return _drawn("history", spans=spans, lines=lines(row.events))

    @admin.display(description="Outcome")
    def outcome(self, row: Handoff) -> SafeString:
        ended = row.status in SETTLED
        endings = Event.objects.filter(handoff_id=row.pk, type=f"handoff.{row.status.lower()}")
        ending = endings.order_by("-event_id").first() if ended else None
        reason = row.rejected_reason or (ending.payload.get("reason") if ending else None)
        found = {"handoff": row, "ended": ended, "ending": ending, "reason": reason, "remarks": remarks.of(row)}
        return _drawn("outcome", **found)


def _named(row: Any, type: str, field: str) -> str:
    """Return a field of the newest of a handoff's events of a type."""
    return next((event.payload.get(field) or "" for event in reversed(row.events) if event.type == type), "")


def _badge(state: str) -> SafeString:
    return format_html('<span class="nx-badge" data-tone="{}">{}</span>', state, in_words(state))


def _drawn(template: str, **context: Any) -> SafeString:
    return render_to_string(f"handoffs/{template}.html", context)
