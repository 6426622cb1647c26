"""The admin's lists of connected forges."""

from __future__ import annotations

from django.contrib import admin

from coordination.admin import InWorkspace, audience
from nexus.forges.models import Forge, ForgeKind
from nexus.web import records
from nexus.web.records import column, moment


@admin.register(Forge)
class ForgeAdmin(InWorkspace):
    intro = (
        "An issue with the label, or assigned to the account, becomes a handoff. Its comment on the forge shows the "
        "progress. To a git remote, which has no issues, the hub pushes approved work."
    )
    list_display = ("name", "kind", "workspace_link", "label_of", "account", "branch", "looked", "problem")
    list_filter = ("kind", *InWorkspace.list_filter)
    search_fields = ("repository", "forge_id", "label", "assignee")
    ordering = ("created_at", "pk")
    sortable_by = ("name",)
    operations = ("forge_disconnect",)
    creates = "forge_connect"
    shows_once = (
        "webhook_secret",
        "The webhook on the forge signs its calls with it; its path is on the page of the forge. Without a webhook the "
        "hub asks the forge what changed. If the secret is lost, add the repository again.",
    )
    fields = (
        *("forge_id", "name", "kind", "api", "workspace_link", "label_of", "account", "branch", "for_whom"),
        *("webhook_path", "operator", "created", "looked", "problem", "failures", "next_try"),
    )
    readonly_fields = fields

    name = column("Repository", lambda row: records.text(row.repository), ordering="repository")
    api = column("Address of the API", lambda row: records.text(row.url))
    label_of = column("Label", lambda row: records.text(row.label))
    account = column("Assigned to", lambda row: records.text(row.assignee))
    branch = column("Branch", lambda row: records.text(row.base))
    for_whom = column("Handoffs are for", lambda row: audience(row.target))
    webhook_path = column(
        "Webhook", lambda row: "–" if row.kind == ForgeKind.GIT else f"/api/v1/forges/{row.pk}/webhook"
    )
    looked = column("Last look", lambda row: moment(row.polled_at))
    problem = column("Last error", lambda row: records.text(row.last_error))
    next_try = column("Next attempt", lambda row: moment(row.next_attempt_at))
