"""The admin's lists of webhooks and of addresses for notices."""

from __future__ import annotations

from django.contrib import admin

from coordination.admin import InWorkspace
from nexus.hooks.forms import ASKS
from nexus.hooks.models import NoticeAddress, Webhook
from nexus.web import records
from nexus.web.records import column, link, moment
from nexus.web.templatetags.nexus import plain


class Outward(InWorkspace):
    """Base of what is sent to an address, of one workspace or of all."""

    ordering = ("created_at", "pk")

    @admin.display(description="Workspace")
    def workspace_link(self, row: Webhook | NoticeAddress) -> str:
        return super().workspace_link(row) if row.workspace_id else "all"

    problem = column("Last error", lambda row: records.text(row.last_error))
    next_try = column("Next attempt", lambda row: moment(row.next_attempt_at))


@admin.register(Webhook)
class WebhookAdmin(Outward):
    intro = (
        "Every event from the moment a webhook is added is sent to its address, signed and in order. A running hub "
        "sends. An event that fails is tried again for a day, then it is given up."
    )
    list_display = ("address", "agent", "types_of", "workspace_link", "delivered", "problem", "given_up")
    search_fields = ("url", "webhook_id", "agent_id")
    sortable_by = ("address",)
    operations = ("webhook_redeliver", "webhook_remove")
    creates = "webhook_add"
    shows_once = (
        "secret",
        "The receiver uses it to check the header webhook-signature of every request (Standard Webhooks). If it is "
        "lost, remove the webhook and add it again.",
    )
    fields = (
        *("webhook_id", "whole_address", "agent", "types_of", "workspace_link", "allow_private"),
        *("created", "delivered", "problem", "failures", "next_try", "given_up"),
    )
    readonly_fields = fields

    def operations_on(self, row: Webhook) -> tuple[str, ...]:
        return self.operations if row.last_error else ("webhook_remove",)

    address = column("Address", lambda row: records.text(row.url), ordering="url")
    whole_address = column("Address", lambda row: plain(row.url))
    agent = column(
        "Mail and handoffs of", lambda row: link("agent", row.agent_id, row.agent_id) if row.agent_id else "everyone"
    )
    types_of = column("Event types", lambda row: records.text(", ".join(row.types)) if row.types else "all")
    delivered = column("Last delivery", lambda row: moment(row.last_delivered_at))


@admin.register(NoticeAddress)
class NoticeAddressAdmin(Outward):
    intro = (
        "What needs a person is sent to these addresses, once, while it waits. A notice says what kind of need it is; "
        "agents' words and links that answer are sent only where you allow them."
    )
    list_display = ("service", "kinds_of", "workspace_link", "quiet", "with_text", "with_answers", "sent", "problem")
    search_fields = ("name", "notice_id")
    sortable_by = ("service",)
    operations = ("notice_test", "notice_update", "notice_remove")
    creates = "notice_add"
    asks = ASKS
    fields = (
        *("notice_id", "service", "kinds_of", "workspace_link", "quiet", "with_text", "with_answers"),
        *("allow_private", "operator", "created", "sent", "problem", "failures", "next_try"),
    )
    readonly_fields = fields

    service = column("Service", lambda row: records.text(row.name), ordering="name")
    kinds_of = column("Kinds of needs", lambda row: records.text(", ".join(row.kinds)) if row.kinds else "every kind")

    @admin.display(description="Quiet hours")
    def quiet(self, row: NoticeAddress) -> str:
        if not (row.quiet_from and row.quiet_until):
            return "–"
        return records.text(f"{row.quiet_from:%H:%M}–{row.quiet_until:%H:%M} {row.timezone or ''}")

    sent = column("Last sent", lambda row: moment(row.last_sent_at))
