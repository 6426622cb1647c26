"""Tasks as records."""

from __future__ import annotations

from django.contrib import admin

from dashboard.admin import records
from dashboard.admin.coordination import InWorkspace
from planning.models import Task


@admin.register(Task)
class TaskAdmin(InWorkspace):
    list_display = ("number", "title_text", "status", "owner", "held_by", "place", "created")
    list_filter = ("status",)
    search_fields = ("title", "task_key")
    ordering = ("-task_key",)
    fields = (
        *("task_key", "number", "title_text", "about", "status", "deps", "owner", "held_by"),
        *("place", "created", "closed_at"),
    )
    readonly_fields = fields

    @admin.display(description="Task")
    def title_text(self, row: Task) -> str:
        return records.text(row.title)

    @admin.display(description="Context")
    def about(self, row: Task) -> str:
        return records.body(row.context)
