"""The admin's lists of webhooks and of addresses for notices."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from coordination.admin import InWorkspace
from nexus.hooks.models import Webhook
from nexus.web import records
from nexus.web.records import link, moment


@admin.register(Webhook)
class WebhookAdmin(InWorkspace):
    intro = (
        "Every event from the moment a webhook is added is sent to its address, signed and in order. A running hub "
        "sends. An event that fails is tried again for a day, then it is given up."
    )
    list_display = ("address", "agent", "types_of", "workspace_link", "delivered", "problem", "given_up")
    search_fields = ("url", "webhook_id", "agent_id")
    ordering = ("created_at", "pk")
    sortable_by = ("address",)
    operations = ("webhook_redeliver", "webhook_remove")
    creates = "webhook_add"
    shows_once = (
        "secret",
        "The receiver uses it to check the header webhook-signature of every request (Standard Webhooks). If it is "
        "lost, remove the webhook and add it again.",
    )
    fields = (
        *("webhook_id", "address", "agent", "types_of", "workspace_link", "allow_private"),
        *("created", "delivered", "problem", "failures", "next_try", "given_up"),
    )
    readonly_fields = fields

    def operations_on(self, row: Webhook) -> tuple[str, ...]:
        return self.operations if row.last_error else ("webhook_remove",)

    @admin.display(description="Address", ordering="url")
    def address(self, row: Webhook) -> SafeString:
        return records.text(row.url)

    @admin.display(description="Mail and handoffs of")
    def agent(self, row: Webhook) -> str:
        return link("agent", row.agent_id, row.agent_id) if row.agent_id else "everyone"

    @admin.display(description="Event types")
    def types_of(self, row: Webhook) -> str:
        return records.text(", ".join(row.types)) if row.types else "all"

    @admin.display(description="Last delivery")
    def delivered(self, row: Webhook) -> str:
        return moment(row.last_delivered_at)

    @admin.display(description="Last error")
    def problem(self, row: Webhook) -> str:
        return records.text(row.last_error)

    @admin.display(description="Next attempt")
    def next_try(self, row: Webhook) -> str:
        return moment(row.next_attempt_at)
