"""The admin's lists of connected forges."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from coordination.admin import InWorkspace, audience
from nexus.forges.models import Forge, ForgeKind
from nexus.web import records
from nexus.web.records import moment


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

    @admin.display(description="Repository", ordering="repository")
    def name(self, row: Forge) -> SafeString:
        return records.text(row.repository)

    @admin.display(description="Address of the API")
    def api(self, row: Forge) -> SafeString:
        return records.text(row.url)

    @admin.display(description="Label")
    def label_of(self, row: Forge) -> SafeString:
        return records.text(row.label)

    @admin.display(description="Assigned to")
    def account(self, row: Forge) -> SafeString:
        return records.text(row.assignee)

    @admin.display(description="Branch")
    def branch(self, row: Forge) -> SafeString:
        return records.text(row.base)

    @admin.display(description="Handoffs are for")
    def for_whom(self, row: Forge) -> SafeString:
        return audience(row.target)

    @admin.display(description="Webhook")
    def webhook_path(self, row: Forge) -> str:
        return "–" if row.kind == ForgeKind.GIT else f"/api/v1/forges/{row.pk}/webhook"

    @admin.display(description="Last look")
    def looked(self, row: Forge) -> str:
        return moment(row.polled_at)

    @admin.display(description="Last error")
    def problem(self, row: Forge) -> SafeString:
        return records.text(row.last_error)

    @admin.display(description="Next attempt")
    def next_try(self, row: Forge) -> str:
        return moment(row.next_attempt_at)
