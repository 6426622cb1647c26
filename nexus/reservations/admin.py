"""The admin's list of reservations: who holds which files, why and until when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from coordination.admin import InWorkspace
from handoffs.models import Handoff
from nexus.core.clock import now
from nexus.reservations import selectors
from nexus.reservations.models import Reservation
from nexus.web import records
from nexus.web.records import column, link, moment
from nexus.web.templatetags.nexus import plain

HANDOFF = "handoffs_handoff_change"


class StateFilter(admin.SimpleListFilter):
    """Filter by whether a reservation is in force; without a choice, those that are."""

    title = parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("ended", "Ended"), ("all", "Held or ended")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        held, *others = super().choices(changelist)
        yield from ({**held, "display": "Held"}, *others)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Reservation]) -> QuerySet[Reservation]:
        if self.value() == "all":
            return queryset
        if self.value() == "ended":
            return queryset.filter(released_at__isnull=False)
        return queryset & selectors.held(now())


@admin.register(Reservation)
class ReservationAdmin(InWorkspace):
    intro = (
        "Agents with the toolset files reserve what they edit; so does nexus reservations reserve. A lease lasts "
        "longer while its agent acts. An agent that waits for files gets them when their reservation ends."
    )
    list_display = ("files", "agent", "how", "what_for", "until", "workspace_link")
    list_filter = (StateFilter, *InWorkspace.list_filter)
    search_fields = ("pattern", "reason", "agent_id", "reservation_id")
    sortable_by = ()
    operations = ("files_end", "files_dismiss_refusals")
    fields = (
        *("reservation_id", "files", "how", "agent", "reason_given", "handoff", "task_id", "workspace_link", "created"),
        *("until", "asked_for", "waiting_now", "refusals"),
    )
    readonly_fields = fields

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        """Order those that ended by their end, latest first; those that are held from the oldest on."""
        return ("-released_at", "pk") if request.GET.get("state") == "ended" else ("created_at", "pk")

    def completed(self, rows: list[Reservation]) -> list[Reservation]:
        known = dict(Handoff.objects.filter(pk__in={row.handoff_id for row in rows}).values_list("pk", "title"))
        for row in rows:
            row.handoff_title = known.get(row.handoff_id or "", "")  # type: ignore[attr-defined]  # for its cell
        return rows

    def operations_on(self, row: Reservation) -> list[str]:
        refused = any(not each.get("dismissed") for each in row.refused)
        admitted = {"files_end": _is_held(row), "files_dismiss_refusals": refused}
        return [name for name, admits in admitted.items() if admits]

    files = column("Files", lambda row: records.text(row.pattern))
    agent = column("Agent", lambda row: link("agent", row.agent_id, row.agent_id))

    @admin.display(description="How")
    def how(self, row: Reservation) -> str:
        how, waiting = "exclusive" if row.exclusive else "shared", len(row.waiting)
        return f"{how}; {waiting} wait" if waiting else how

    @admin.display(description="What for")
    def what_for(self, row: Reservation) -> SafeString:
        title: str = row.handoff_title  # type: ignore[attr-defined]
        parts: list[str] = [records.text(row.reason)] if row.reason and row.reason != title else []
        parts += [self.handoff(row)] if row.handoff_id else []
        parts += [f"task {row.task_id}"] if row.task_id else []
        return format_html("<div>{}</div>", format_html_join("", "<div>{}</div>", ((part,) for part in parts)) or "–")

    reason_given = column("Reason", lambda row: plain(row.reason) or "–")
    handoff = column("Handoff", lambda row: link(HANDOFF, row.handoff_title or row.handoff_id, row.handoff_id or ""))

    @admin.display(description="Lease, or end")
    def until(self, row: Reservation) -> SafeString:
        if row.released_at is not None:
            return format_html("<div>{} {}</div>", row.get_outcome_display(), moment(row.released_at))
        return format_html("<div>until {}</div>", moment(row.expires_at))

    asked_for = column("Asked for by", lambda row: _agents(row.asked_by))
    waiting_now = column("Waits for it now", lambda row: _agents(row.waiting))

    @admin.display(description="Refused for it, or made")
    def refusals(self, row: Reservation) -> SafeString | str:
        each = (
            (
                "past the guard, " if refusal.get("passed") else "",
                refusal["verb"],
                _agents([refusal["agent_id"]]) if refusal["agent_id"] else "a person",
            )
            for refusal in row.refused
        )
        return format_html_join(", ", "{}a {} of {}", each) or "–"


def _is_held(row: Reservation) -> bool:
    return selectors.held(now()).filter(pk=row.pk).exists()


def _agents(names: Sequence[str]) -> SafeString | str:
    return format_html_join(", ", "{}", ((link("agent", name, name),) for name in names)) or "–"
