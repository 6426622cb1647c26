"""REST resources of messages and deliveries."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, Prefetch, Q
from django.shortcuts import get_object_or_404
from django_filters import CharFilter, ChoiceFilter, FilterSet, IsoDateTimeFilter
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter

from coordination.api import Resource, body_of
from core.clock import now
from inbox import lanes, monitoring
from inbox.models import Delivery, DeliveryStatus, Message


class DeliveryOfMessageSerializer(serializers.ModelSerializer[Delivery]):
    """Where a message stands with one recipient."""

    recipient = serializers.CharField(source="recipient_id", read_only=True)
    status = serializers.SerializerMethodField()

    class Meta:
        model = Delivery
        fields = ["delivery_id", "recipient", "status", "attempts", "delivered_at", "lease_expires_at", "read_at"]
        read_only_fields = fields

    def get_status(self, delivery: Delivery) -> str:
        return lanes.effective(delivery.status, delivery.lease_expires_at, now())


class MessageSerializer(serializers.ModelSerializer[Message]):
    workspace_id = serializers.CharField(read_only=True)
    channel_id = serializers.CharField(read_only=True, allow_null=True)
    parent_message_id = serializers.CharField(source="parent_id", read_only=True, allow_null=True)

    class Meta:
        model = Message
        fields = [
            "message_id",
            "workspace_id",
            "from_agent_id",
            "from_session_id",
            "channel_id",
            "parent_message_id",
            "target",
            "subject",
            "body",
            "artifacts",
            "created_at",
        ]
        read_only_fields = fields


class MessageWithDeliveriesSerializer(MessageSerializer):
    deliveries = DeliveryOfMessageSerializer(source="known_deliveries", many=True, read_only=True)

    class Meta(MessageSerializer.Meta):
        fields = [*MessageSerializer.Meta.fields, "deliveries"]
        read_only_fields = fields


class MessageFilters(FilterSet):
    workspace = CharFilter()
    channel = CharFilter()
    from_agent_id = CharFilter()
    recipient = CharFilter(field_name="deliveries__recipient")
    parent_message_id = CharFilter(field_name="parent")
    created_at__gte = IsoDateTimeFilter(field_name="created_at", lookup_expr="gte")
    created_at__lt = IsoDateTimeFilter(field_name="created_at", lookup_expr="lt")


class Messages(Resource):
    """What agents sent. An agent sees what it sent and what it received; of the latter, only its own delivery."""

    queryset = Message.objects.all()
    filterset_class = MessageFilters
    ordering = ["-message_id", "from_agent_id"]

    def get_serializer_class(self) -> Any:
        return MessageWithDeliveriesSerializer if self.action == "retrieve" else MessageSerializer

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

    @extend_schema(request=body_of("message_create"), responses={201: {"type": "object"}})
    def create(self, request: Request) -> Response:
        """Send a message, as the operation message_create."""
        return self.operate("message_create", self.body, success=201)

    @extend_schema(responses=MessageSerializer(many=True))
    @action(detail=True)
    def thread(self, request: Request, pk: str) -> Response:
        """The conversation that a message belongs to, as far as the caller may see it."""
        message = get_object_or_404(self.get_queryset(), pk=pk)
        in_thread = [row.pk for row in monitoring.thread(message)]
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset().filter(pk__in=in_thread)))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)


class DeliverySerializer(DeliveryOfMessageSerializer):
    message_id = serializers.CharField(read_only=True)
    workspace_id = serializers.CharField(source="message.workspace_id", read_only=True)
    from_agent_id = serializers.CharField(source="message.from_agent_id", read_only=True)
    subject = serializers.CharField(source="message.subject", read_only=True)

    class Meta(DeliveryOfMessageSerializer.Meta):
        fields = [
            *DeliveryOfMessageSerializer.Meta.fields,
            "message_id",
            "workspace_id",
            "from_agent_id",
            "subject",
            "created_at",
        ]
        read_only_fields = fields


class DeliveryFilters(FilterSet):
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

    queryset = Delivery.objects.select_related("message")
    serializer_class = DeliverySerializer
    filterset_class = DeliveryFilters
    ordering = ["-delivery_id"]

    def visible_rows(self, rows: Any, agent_id: str) -> Any:
        return rows.filter(recipient_id=agent_id)


router = SimpleRouter(trailing_slash=False)
router.register("messages", Messages, basename="message")
router.register("deliveries", Deliveries, basename="delivery")

routes = router.urls
