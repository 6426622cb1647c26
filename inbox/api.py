"""REST resources of messages and deliveries."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, Prefetch, Q
from django.shortcuts import get_object_or_404
from django_filters import CharFilter, ChoiceFilter, IsoDateTimeFilter
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from coordination.api import Resource, answer_of, body_of
from core.clock import iso, now
from core.operations.shapes import Time
from core.rest import schema
from core.rest.viewsets import ListFilters
from inbox import monitoring
from inbox.models import Delivery, DeliveryStatus, Message
from inbox.rows import DeliveryRow, MessageRow, delivery_row, message_row


class WholeMessage(MessageRow):
    deliveries: list[DeliveryRow]


class MessageFilters(ListFilters):
    workspace = CharFilter()
    channel = CharFilter()
    from_agent_id = CharFilter()
    recipient = CharFilter(field_name="deliveries__recipient")
    parent_message_id = CharFilter(field_name="parent")
    created_at__gte = IsoDateTimeFilter(field_name="created_at", lookup_expr="gte")
    created_at__lt = IsoDateTimeFilter(field_name="created_at", lookup_expr="lt")


class Messages(Resource):
    """What agents sent. An agent sees what it sent and what it received; of the latter, only its own delivery."""

    told_by = "inbox_history"
    queryset = Message.objects.select_related("workspace")
    filterset_class = MessageFilters
    ordering = ["-message_id", "from_agent_id"]

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

    def visible_rows(self, rows: Any, agent_id: str) -> Any:
        received = Delivery.objects.of(agent_id).filter(message=OuterRef("pk"))
        return rows.filter(Q(from_agent_id=agent_id) | Exists(received))

    @extend_schema(request=body_of("message_create"), responses={201: answer_of("message_create")})
    def create(self, request: Request) -> Response:
        """Send a message, as the operation message_create."""
        return self.operate("message_create", self.body, success=201)

    @extend_schema(responses={200: schema.page_of(MessageRow)})
    @action(detail=True)
    def thread(self, request: Request, pk: str) -> Response:
        """The conversation that a message belongs to, as far as the caller may see it."""
        message = get_object_or_404(self.get_queryset(), pk=pk)
        in_thread = [row.pk for row in monitoring.thread(message)]
        return self.page(self.get_queryset().filter(pk__in=in_thread))


class DeliveryRecord(DeliveryRow):
    message_id: str
    workspace_id: str
    workspace_name: str
    from_agent_id: str
    subject: str
    created_at: Time


class DeliveryFilters(ListFilters):
    """The lane that counts: in flight with a lapsed lease is unread again."""

    status = ChoiceFilter(choices=DeliveryStatus.choices, method="in_lane")
    recipient = CharFilter()
    message = CharFilter()
    workspace = CharFilter(field_name="message__workspace")
    from_agent_id = CharFilter(field_name="message__from_agent_id")
    created_at__gte = IsoDateTimeFilter(field_name="created_at", lookup_expr="gte")
    created_at__lt = IsoDateTimeFilter(field_name="created_at", lookup_expr="lt")

    def in_lane(self, rows: Any, name: str, lane: str) -> Any:
        return rows.in_lane(lane, now())


class Deliveries(Resource):
    """Messages in inboxes; an agent sees its own."""

    told_by = "inbox_peek"
    queryset = Delivery.objects.select_related("message__workspace")
    filterset_class = DeliveryFilters
    ordering = ["-delivery_id"]

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
