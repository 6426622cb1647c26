"""Handoffs as records; the board shows the live ones."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from dashboard.admin.coordination import InWorkspace
from dashboard.admin.records import code, link, moment
from handoffs.models import Handoff


@admin.register(Handoff)
class HandoffAdmin(InWorkspace):
    list_display = ("number", "status", "sender", "audience", "holder", "place", "changed")
    list_filter = ("status",)
    search_fields = ("handoff_id", "from_agent_id", "claimed_by")
    ordering = ("-created_event_id",)
    sortable_by = ("number",)
    fields = ("number", "status", "sender", "audience", "visibility", "holder", "place", "created", "changed")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("payload", "result")

    @admin.display(description="Handoff", ordering="created_event_id")
    def number(self, row: Handoff) -> str:
        return link("handoff", row.pk, row.pk)

    @admin.display(description="From")
    def sender(self, row: Handoff) -> str:
        return link("agent", row.from_agent_id, row.from_agent_id)

    @admin.display(description="Target")
    def audience(self, row: Handoff) -> str:
        return code(row.target)

    @admin.display(description="Claimed by")
    def holder(self, row: Handoff) -> str:
        return link("agent", row.claimed_by, row.claimed_by or "")

    @admin.display(description="Changed")
    def changed(self, row: Handoff) -> str:
        return moment(row.updated_at)
