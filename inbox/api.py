"""REST resources of messages and deliveries."""

from __future__ import annotations

from typing import Any

from django.db.models import BigIntegerField, Exists, F, OuterRef, Prefetch, Q
from django.db.models.functions import Cast
from django.shortcuts import get_object_or_404
from django_filters import CharFilter, ChoiceFilter
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from coordination.api import MadeFilters, Resource, answer_of, body_of
from coordination.models import Agent
from inbox import monitoring
from inbox.models import Delivery, DeliveryStatus, Message
from inbox.rows import DeliveryRow, MessageRow, delivery_row, message_row
from nexus.core.clock import iso, now
from nexus.core.database.keys import number_of
from nexus.core.operations.parameters import Time
from nexus.core.rest import schema
from nexus.core.rest.pagination import BY_KEY


class WholeMessage(MessageRow):
    deliveries: list[DeliveryRow]


class MessageFilters(MadeFilters):
    prefix = "msg"
    workspace = CharFilter(method="of_workspace")
    channel = CharFilter()
    from_agent_id = CharFilter()
    recipient = CharFilter(method="sent_to")
    agent = CharFilter(method="sent_or_received_by")
    parent_message_id = CharFilter(field_name="parent")

    def of_workspace(self, rows: Any, name: str, workspace_id: str) -> Any:
        if self.form.cleaned_data["recipient"]:  # whose mail is gone through, and not all of the workspace's
            return rows.alias(number=Cast("workspace_id", BigIntegerField())).filter(number=number_of(workspace_id))
        return rows.filter(workspace=workspace_id)

    def sent_to(self, rows: Any, name: str, agent_id: str) -> Any:
        return rows.filter(deliveries__recipient=agent_id).annotate(**{BY_KEY: F("deliveries__message_id")})

    def sent_or_received_by(self, rows: Any, name: str, agent_id: str) -> Any:
        return _of_agent(rows, agent_id)


class Messages(Resource):
    """Messages. An agent sees those that it sent or received; of a received one, only its own delivery."""

    same_as = "inbox_history"
    queryset = Message.objects.select_related("workspace")
    filterset_class = MessageFilters
    ordering = ["-message_id", "from_agent_id"]
    unindexed = frozenset({"agent"})

    def show(self, row: Message) -> MessageRow:
        return message_row(row)

    def show_whole(self, row: Any) -> WholeMessage:
        moment = now()
        return {**message_row(row), "deliveries": [delivery_row(delivery, moment) for delivery in row.known_deliveries]}

    def rows(self) -> Any:
        rows = super().rows()
        if self.action != "retrieve":
            return rows
        known = Delivery.objects.order_by("recipient_id")
        if (agent_id := self.caller.agent_id) is not None:
            known = known.filter(Q(recipient_id=agent_id) | Q(message__from_agent_id=agent_id))
        return rows.prefetch_related(Prefetch("deliveries", known, to_attr="known_deliveries"))

    def passes_many(self) -> bool:
        return self.caller.agent_id is not None or super().passes_many()

    def visible_rows(self, rows: Any, agent_id: str) -> Any:
        return _of_agent(rows, agent_id)

    @extend_schema(request=body_of("message_create"), responses={201: answer_of("message_create")})
    def create(self, request: Request) -> Response:
        """Send a message, as the operation message_create."""
        return self.operate("message_create", self.body, success=201)

    @extend_schema(responses={200: answer_of("message_receipts")})
    @action(detail=True)
    def receipts(self, request: Request, pk: str) -> Response:
        """How far a message has come with each recipient, as the operation message_receipts."""
        return self.operate("message_receipts", {"message_id": pk})

    @extend_schema(responses={200: schema.page_of(MessageRow)})
    @action(detail=True)
    def thread(self, request: Request, pk: str) -> Response:
        """The conversation that a message belongs to, as far as the caller may see it."""
        message = get_object_or_404(self.get_queryset(), pk=pk)
        in_thread = [row.pk for row in monitoring.thread(message)]
        return self.page(self.get_queryset().filter(pk__in=in_thread))


def _of_agent(rows: Any, agent_id: str) -> Any:
    """Return the messages that an agent sent or received."""
    received = Delivery.objects.of(agent_id).filter(message=OuterRef("pk"))
    return rows.filter(Q(from_agent_id=agent_id) | Exists(received))


class DeliveryRecord(DeliveryRow):
    message_id: str
    workspace_id: str
    workspace_name: str
    from_agent_id: str
    subject: str
    created_at: Time


class DeliveryFilters(MadeFilters):
    """Filters of the list. The status is the current one: in flight with an expired lease counts as unread."""

    prefix = "dlv"
    status = ChoiceFilter(choices=DeliveryStatus.choices, method="with_status")
    recipient = CharFilter()
    message = CharFilter()
    workspace = CharFilter(method="of_messages")
    from_agent_id = CharFilter(method="of_messages")

    def of_messages(self, rows: Any, name: str, value: str) -> Any:
        # By the subquery SQLite goes through deliveries in their order, and not through messages, to sort them all.
        return rows.filter(Exists(Message.objects.filter(**{name: value}, pk=OuterRef("message_id"))))

    def with_status(self, rows: Any, name: str, status: str) -> Any:
        if status == DeliveryStatus.READ:  # nearly all there are
            return rows.filter(status=status)
        recipient = self.form.cleaned_data["recipient"]
        among: Any = [recipient] if recipient else Agent.everyone.values("pk")
        mail = Delivery.objects.filter(recipient__in=among)  # by the status in each inbox
        return rows.filter(pk__in=mail.ids_with_status(status, now()))


class Deliveries(Resource):
    """Messages in inboxes; an agent sees its own."""

    same_as = "inbox_peek"
    queryset = Delivery.objects.select_related("message__workspace").defer("message__body", "message__artifacts")
    filterset_class = DeliveryFilters
    ordering = ["-delivery_id"]
    unindexed = frozenset({"workspace", "from_agent_id"})

    def show(self, row: Delivery) -> DeliveryRecord:
        message = row.message
        return {
            **delivery_row(row, now()),
            "message_id": message.message_id,
            "workspace_id": message.workspace_id,
            "workspace_name": message.workspace.name,
            "from_agent_id": message.from_agent_id,
            "subject": message.subject,
            "created_at": iso(row.created_at),
        }

    def visible_rows(self, rows: Any, agent_id: str) -> Any:
        return rows.filter(recipient_id=agent_id)


router = SimpleRouter(trailing_slash=False)
router.register("messages", Messages, basename="message")
router.register("deliveries", Deliveries, basename="delivery")

routes = router.urls
