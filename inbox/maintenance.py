"""What export, retention and doctor need of this app: kinds, lanes, and states that no operation leaves behind."""

from __future__ import annotations

from datetime import datetime

from inbox.models import Delivery, DeliveryQuerySet, DeliveryStatus, Message
from nexus.core.contributions import ExportKind, ImpossibleState, RetentionLane, rows_in_workspace

KINDS = (
    ExportKind("message", Message, 60, rows_in_workspace(Message), agents=("from_agent_id",)),
    ExportKind("delivery", Delivery, 70, rows_in_workspace(Delivery, "message__workspace"), agents=("recipient_id",)),
)

IMPOSSIBLE = (
    ImpossibleState(
        "message_deliveries",
        "in flight without a lease",
        "status = 'delivered' AND (lease_expires_at IS NULL OR delivered_at IS NULL)",
        "delivered_at = coalesce(delivered_at, created_at), lease_expires_at = coalesce(lease_expires_at, created_at)",
        "their lease was ended, so that the next pull hands them out again",
    ),
    ImpossibleState(
        "message_deliveries",
        "acknowledged without a time",
        "status = 'read' AND read_at IS NULL",
        "read_at = coalesce(delivered_at, created_at)",
        "the time of their delivery was used",
    ),
    ImpossibleState(
        "message_deliveries",
        "out of flight with a lease",
        "status <> 'delivered' AND lease_expires_at IS NOT NULL",
        "lease_expires_at = NULL",
        "the lease was removed",
    ),
)


def _read_deliveries(horizon: datetime) -> DeliveryQuerySet:
    return Delivery.objects.filter(status=DeliveryStatus.READ, read_at__lt=horizon).order_by("read_at")


LANES = (RetentionLane("read_deliveries", _read_deliveries, "retention_read_deliveries_keep_days"),)
