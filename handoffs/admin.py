"""The admin's records of handoffs; the board shows the live ones."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from coordination.admin import InWorkspace, WorkspaceFilter, audience
from handoffs.attention import VERBS, possible
from handoffs.models import Handoff
from handoffs.selectors import state_at
from nexus.core.clock import now
from nexus.web.records import column, link, moment
from nexus.web.templatetags.nexus import readable


@admin.register(Handoff)
class HandoffAdmin(InWorkspace):
    list_display_links = None  # its page tells it all
    list_display = ("work", "status", "sender", "audience", "holder", "leased", "workspace_link", "changed")
    list_filter = ("status", WorkspaceFilter)
    operations = tuple(VERBS.values())
    search_fields = ("title", "handoff_id", "from_agent_id", "claimed_by")
    ordering = ("-created_event_id",)
    sortable_by = ("work",)
    fields = (
        *("work", "number", "status", "sender", "audience", "visibility", "holder", "leased"),
        *("workspace_link", "created", "changed", "content", "outcome"),
    )
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.defer("payload", "result") if request.path.endswith("/handoff/") else rows

    def operations_on(self, row: Handoff) -> list[str]:
        return [action.operation for action in possible(state_at(row, now()))]

    work = column("Work", lambda row: link("handoff", row.title, row.pk), ordering="created_event_id")
    number = column("Handoff", lambda row: link("handoff", row.pk, row.pk))
    sender = column("From", lambda row: link("agent", row.from_agent_id, row.from_agent_id))
    audience = column("For", lambda row: audience(row.target))
    holder = column("Claimed by", lambda row: link("agent", row.claimed_by, row.claimed_by or ""))
    leased = column("Lease until", lambda row: moment(row.lease_expires_at))
    content = column("Payload", lambda row: readable(row.payload))
    outcome = column("Result", lambda row: readable(row.result))
    changed = column("Changed", lambda row: moment(row.updated_at))
