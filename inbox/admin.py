"""The admin's records of messages and deliveries; the Mail page shows them as mail."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from coordination.admin import InWorkspace, audience
from inbox.models import Delivery, DeliveryStatus, Message
from nexus.web import records
from nexus.web.forms import searched
from nexus.web.records import OperationAdmin, link, moment


@admin.register(Message)
class MessageAdmin(InWorkspace):
    list_display_links = None  # its page tells it all
    list_display = ("title", "sender", "audience", "workspace_link", "channel_link", "recipients", "sent")
    list_select_related = ("workspace", "channel")
    search_fields = ("message_id__exact",)
    search_help_text = "A message id; the Search page finds words"
    ordering = ("-message_id",)
    sortable_by = ("title",)
    fields = (
        "message_id",
        "title",
        "sender",
        "audience",
        "workspace_link",
        "channel_link",
        "answers",
        "recipients",
        "sent",
        "letter",
        "open_mail",
        "deliveries",
    )
    readonly_fields = fields

    @admin.display(description="Subject", ordering="message_id")
    def title(self, row: Message) -> str:
        return link("mail", row.subject, m=row.pk)

    @admin.display(description="From")
    def sender(self, row: Message) -> str:
        return link("agent", row.from_agent_id, row.from_agent_id)

    @admin.display(description="To")
    def audience(self, row: Message) -> str:
        return audience(row.target)

    @admin.display(description="Channel")
    def channel_link(self, row: Message) -> str:
        return link("coordination_channel_change", row.channel, row.channel_id or "")

    @admin.display(description="Recipients")
    def recipients(self, row: Message) -> int:
        return row.recipients_count

    @admin.display(description="Answers")
    def answers(self, row: Message) -> str:
        return link("inbox_message_change", row.parent, row.parent_id or "")

    @admin.display(description="Sent")
    def sent(self, row: Message) -> str:
        return moment(row.created_at)

    @admin.display(description="Body")
    def letter(self, row: Message) -> str:
        return records.body(row.body)

    @admin.display(description="Mail")
    def open_mail(self, row: Message) -> str:
        return link("mail", "Open it as mail", m=row.pk)

    @admin.display(description="Deliveries")
    def deliveries(self, row: Message) -> str:
        return link("inbox_delivery_changelist", "Its deliveries", q=row.pk)


@admin.register(Delivery)
class DeliveryAdmin(OperationAdmin):
    list_display_links = None  # its page tells it all
    list_display = ("letter", "who", "status", "attempts", "leased", "read", "created")
    list_select_related = ("message",)
    list_filter = ("status",)
    operations = ("dead_letter_requeue", "dead_letter_forward", "dead_letter_acknowledge")
    search_fields = ("message_id__exact", "recipient_id__exact")  # that there are any shows the field
    search_help_text = "A message id or an agent id"
    ordering = ("-delivery_id",)
    sortable_by = ("letter",)
    fields = ("delivery_id", "letter", "who", "status", "attempts", "handed", "leased", "read", "created")
    readonly_fields = fields

    def operations_on(self, row: Delivery) -> tuple[str, ...]:
        return self.operations if row.status == DeliveryStatus.PARKED else ()

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        """Find by the one or the other: no index serves both in the order of the list."""
        term = searched(search_term)
        if not term:
            return queryset, False
        column = "message" if Message.objects.filter(pk=term).exists() else "recipient"
        return queryset.filter(**{column: term}), False

    @admin.display(description="Message", ordering="delivery_id")
    def letter(self, row: Delivery) -> str:
        return link("mail", row.message.subject, m=row.message_id)

    @admin.display(description="Recipient")
    def who(self, row: Delivery) -> str:
        return link("agent", row.recipient_id, row.recipient_id)

    @admin.display(description="Last handed out")
    def handed(self, row: Delivery) -> str:
        return moment(row.delivered_at)

    @admin.display(description="Lease until")
    def leased(self, row: Delivery) -> str:
        return moment(row.lease_expires_at)

    @admin.display(description="Read")
    def read(self, row: Delivery) -> str:
        return moment(row.read_at)

    @admin.display(description="Created")
    def created(self, row: Delivery) -> str:
        return moment(row.created_at)
