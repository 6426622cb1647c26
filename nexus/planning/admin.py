"""The admin's records of tasks and closed cycles."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from coordination.admin import InWorkspace, WorkspaceFilter
from nexus.planning import monitoring
from nexus.planning.models import Cycle, Task, TaskStatus
from nexus.web import records
from nexus.web.forms import searched
from nexus.web.records import column, link, moment


@admin.register(Task)
class TaskAdmin(InWorkspace):
    list_display = ("number", "title_text", "status", "owner", "held_by", "workspace_link", "created")
    list_filter = ("status", ("closed_at", admin.EmptyFieldListFilter), WorkspaceFilter)
    search_fields = ("title", "task_key")
    operations = ("task_approve", "task_send_back", "task_update")
    ordering = ("-task_key",)
    fields = (
        *("task_key", "number", "title_text", "about", "status", "after", "owner", "held_by"),
        *("workspace_link", "created", "closed_at", "open_task"),
    )
    readonly_fields = fields

    def operations_on(self, row: Task) -> tuple[str, ...]:
        if row.closed_at is not None or row.status != TaskStatus.IN_PROGRESS:
            return ()
        approve, send_back, release = self.operations
        return (approve, send_back) if row.submitted_at else (release,)

    def subject(self, row: Task) -> str:
        """Return its claim: what somebody began anew since is left alone."""
        return f"{row.pk}.{row.claim_epoch}"

    title_text = column("Task", lambda row: records.text(row.title))
    about = column("Context", lambda row: records.body(row.context))
    after = column("After", lambda row: ", ".join(f"task {number}" for number in row.deps) or "–")
    open_task = column("Page", lambda row: link("task", "The task among the others", row.pk))


@admin.register(Cycle)
class CycleAdmin(InWorkspace):
    list_display_links = None  # its page tells it all
    list_display = ("ended", "plan", "workspace_link", "on", "task_count")
    search_fields = ("words",)
    ordering = ("-completed_at", "-pk")
    sortable_by = ()
    fields = ("ended", "plan", "workspace_link", "on", "task_count")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Cycle]:
        found: QuerySet[Cycle] = super().get_queryset(request).in_history().defer("words", "document")
        return found

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Cycle], search_term: str) -> Any:
        return queryset.filter(words__contains=searched(search_term).lower()), False

    @admin.display(description="Closed")
    def ended(self, row: Cycle) -> str:
        ended = monitoring.moment_of(row.completed_at)
        return records.text(row.completed_at or "at no time") if ended is None else moment(ended)

    plan = column("Plan", lambda row: link("plan_cycle", row.topic or "no plan", str(row.pk)))
    on = column("Branch", lambda row: records.text(row.branch))
