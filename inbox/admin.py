"""The admin's records of messages and deliveries; the Mail page shows them as mail."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from coordination.admin import InWorkspace, audience
from inbox.models import Delivery, DeliveryStatus, Message
from nexus.web import records
from nexus.web.records import OperationAdmin, column, link, moment


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

    title = column("Subject", lambda row: link("mail", row.subject, m=row.pk), ordering="message_id")
    sender = column("From", lambda row: link("agent", row.from_agent_id, row.from_agent_id))
    audience = column("To", lambda row: audience(row.target))
    channel_link = column("Channel", lambda row: link("coordination_channel_change", row.channel, row.channel_id or ""))
    recipients = column("Recipients", lambda row: row.recipients_count)
    answers = column("Answers", lambda row: link("inbox_message_change", row.parent, row.parent_id or ""))
    sent = column("Sent", lambda row: moment(row.created_at))
    letter = column("Body", lambda row: records.body(row.body))
    open_mail = column("Mail", lambda row: link("mail", "Open it as mail", m=row.pk))
    deliveries = column("Deliveries", lambda row: link("inbox_delivery_changelist", "Its deliveries", q=row.pk))


@admin.register(Delivery)
class DeliveryAdmin(OperationAdmin):
    list_display_links = None  # its page tells it all
    list_display = ("letter", "who", "status", "attempts", "leased", "read", "created")
    list_select_related = ("message",)
    list_filter = ("status",)
    operations = ("dead_letter_requeue", "dead_letter_forward", "dead_letter_acknowledge")
    search_fields = finds_by = ("message", "recipient")
    search_help_text = "A message id or an agent id"
    ordering = ("-delivery_id",)
    sortable_by = ("letter",)
    fields = ("delivery_id", "letter", "who", "status", "attempts", "handed", "leased", "read", "created")
    readonly_fields = fields

    def operations_on(self, row: Delivery) -> tuple[str, ...]:
        return self.operations if row.status == DeliveryStatus.PARKED else ()

    letter = column("Message", lambda row: link("mail", row.message.subject, m=row.message_id), ordering="delivery_id")
    who = column("Recipient", lambda row: link("agent", row.recipient_id, row.recipient_id))
    handed = column("Last handed out", lambda row: moment(row.delivered_at))
    leased = column("Lease until", lambda row: moment(row.lease_expires_at))
    read = column("Read", lambda row: moment(row.read_at))
    created = column("Created", lambda row: moment(row.created_at))
