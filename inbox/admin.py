"""The admin's lists of messages, which are the inbox, and of deliveries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import TextFilter

from coordination.admin import EventAdmin, InWorkspace, WorkspaceFilter, audience
from coordination.models import Channel
from coordination.provenance import on_behalf_of, provenance_row, sender_in_words
from inbox import monitoring, receipts
from inbox.lifecycle import effective
from inbox.models import Delivery, DeliveryStatus, Message
from inbox.search import search
from nexus.core.clock import now
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.web import records
from nexus.web.forms import OFFERED, searched
from nexus.web.records import MOST_EXPORTED, NONE, ChoiceFilter, OperationAdmin, column, link, moment
from nexus.web.templatetags.nexus import plain, short

BEGINS = 200  # characters of a body in the list
FOUND = 500  # hits of a search by words


class MailStatus(ChoiceFilter):
    title, parameter_name = "status", "status"
    choices_offered = (
        *(("unread", "Unread"), ("delivered", "Being handled"), ("read", "Read")),
        *(("parked", "Dead letters"), ("nobody", "Reached nobody")),
    )

    def chosen(self, queryset: Any, value: str) -> Any:
        return monitoring.with_status(queryset, value)


class AgentFilter(TextFilter):  # type: ignore[misc]  # the theme ships no types
    """Mail that an agent sent or received."""

    title, parameter_name = "agent", "agent"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        agent_id, others = self.value(), {"workspace", "channel", "status", "q"}
        if not agent_id or others & {name for name, value in request.GET.items() if value}:
            return monitoring.sent_or_received(queryset, agent_id) if agent_id else queryset
        rows = MOST_EXPORTED if getattr(request, "exports", False) else MessageAdmin.list_per_page
        return monitoring.newest_of(queryset, agent_id, request.GET.get("message_id__lt", ""), rows + 1)


class ChannelFilter(admin.SimpleListFilter):
    """The channels of the chosen workspace."""

    title, parameter_name = "channel", "channel"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        here = Channel.objects.filter(workspace=request.GET.get("workspace")).order_by("name")
        return [(row.pk, plain(row)) for row in here[:OFFERED]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Message]) -> QuerySet[Message]:
        return queryset.filter(channel=self.value()) if self.value() else queryset


@admin.register(Message)
class MessageAdmin(InWorkspace):
    intro = "Every message, newest first, and where it stands with each recipient."
    list_display_links = None  # the subject is the link
    list_display = ("title", "sender", "audience", "standing", "workspace_link", "sent")
    list_filter = (MailStatus, AgentFilter, WorkspaceFilter, ChannelFilter)
    list_filter_submit = True
    list_select_related = ("workspace", "channel")
    search_fields = ("subject",)  # that there are any shows the field
    search_help_text = "Words of a subject or a body, or a message's id"
    ordering = ("-message_id",)
    sortable_by = ()
    operations = ("inbox_ack",)
    rare = ("channel_link", "trace", "answers", "expected", "cited", "thread")
    fieldsets = (
        (None, {"fields": (
            *("message_id", "sender", "sender_proof", "audience", "workspace_link", "channel_link", "trace", "answers"),
            "sent",
        )}),
        ("Message", {"fields": ("letter", "cited")}),
        ("Delivery", {"fields": ("expected", "deliveries", "thread")}),
    )  # fmt: skip
    readonly_fields = tuple(name for _, options in fieldsets for name in options["fields"])

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        rows: QuerySet[Message] = super().get_queryset(request)
        if not request.path.endswith("/message/"):
            return rows.select_related("workspace", "channel", "parent")
        return rows.annotate(begins=Substr("body", 1, BEGINS)).defer("body")

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        term = searched(search_term)
        if not term:
            return queryset, False
        if Message.objects.filter(pk=term).exists():
            return queryset.filter(pk=term), False
        return queryset.filter(
            pk__in=[hit.identifier for hit in search(term, limit=FOUND) if hit.kind == "message"]
        ), False

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return none: what is another's is not the operator's to mark as read."""
        return {}

    def completed(self, rows: list[Message]) -> list[Message]:
        moment, found = now(), monitoring.deliveries_for(rows)
        for row in rows:
            row.arrivals = found[row.pk]  # type: ignore[attr-defined]
            for delivery in found[row.pk]:
                delivery.status = effective(delivery.status, delivery.lease_expires_at, moment)
        return rows

    def operations_on(self, row: Any) -> Sequence[str]:
        mine = (each for each in row.arrivals if each.recipient_id == OPERATOR_AGENT)
        return self.operations if any(each.status != DeliveryStatus.READ for each in mine) else ()

    def links_on(self, row: Message) -> list[tuple[str, str]]:
        return [("Reply", f"{reverse('admin:speak')}?{urlencode({'reply': row.pk})}")]

    @admin.display(description="Subject")
    def title(self, row: Any) -> SafeString:
        return _drawn("title", message=row)

    @admin.display(description="Stands")
    def standing(self, row: Any) -> SafeString:
        counted = Counter(each.status for each in row.arrivals)
        return _drawn("standing", message=row, counted=dict(counted))

    sender = column("From", lambda row: link("agent", row.from_agent_id, row.from_agent_id))
    sender_proof = column("Its sender", lambda row: sender_in_words(provenance_row(row, on_behalf_of([row]))) + ".")
    audience = column("To", lambda row: audience(row.target))
    channel_link = column("Channel", lambda row: link("coordination_channel_change", row.channel, row.channel_id or ""))
    answers = column("Answers", lambda row: link("inbox_message_change", row.parent, row.parent_id or ""))
    sent = column("Sent", lambda row: moment(row.created_at))
    letter = column("Body", lambda row: records.body(row.body))

    @admin.display(description="Trace")
    def trace(self, row: Message) -> str:
        return link("coordination_event_changelist", row.trace_id, trace=row.trace_id) if row.trace_id else NONE

    @admin.display(description="Artifacts")
    def cited(self, row: Message) -> str:
        found = ((link("coordination_artifact_change", short(each), each),) for each in row.artifacts)
        return format_html_join(", ", "{}", found) or NONE

    @admin.display(description="Expected")
    def expected(self, row: Message) -> str:
        if row.expect is None or row.expect_by is None:
            return NONE
        return format_html("{} by {}", receipts.Stages(str(row.expect)).label, moment(row.expect_by))

    @admin.display(description="Recipients")
    def deliveries(self, row: Any) -> SafeString:
        return _drawn("deliveries", message=row, deliveries=receipts.steps(row, row.arrivals))

    @admin.display(description="Thread")
    def thread(self, row: Message) -> str:
        found = monitoring.thread(row)
        return _drawn("thread", message=row, thread=found) if len(found) > 1 else NONE


def _drawn(template: str, **context: Any) -> SafeString:
    return render_to_string(f"inbox/{template}.html", context)


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
    sortable_by = ()
    fields = ("delivery_id", "letter", "who", "status", "attempts", "handed", "leased", "read", "created")
    readonly_fields = fields

    def operations_on(self, row: Delivery) -> tuple[str, ...]:
        return self.operations if row.status == DeliveryStatus.PARKED else ()

    letter = column("Message", lambda row: link("inbox_message_change", row.message.subject, row.message_id))
    who = column("Recipient", lambda row: link("agent", row.recipient_id, row.recipient_id))
    handed = column("Last handed out", lambda row: moment(row.delivered_at))
    leased = column("Lease until", lambda row: moment(row.lease_expires_at))
    read = column("Read", lambda row: moment(row.read_at))
    created = column("Created", lambda row: moment(row.created_at))


EventAdmin.find_by_words = staticmethod(lambda words: [hit.document for hit in search(words, limit=FOUND)])
