"""What export and retention need of this app: kinds and retention rules."""

from __future__ import annotations

from datetime import datetime

from inbox.models import Delivery, DeliveryQuerySet, DeliveryStatus, Message
from nexus.core.contributions import ExportKind, RetentionRule, rows_in_workspace

KINDS = (
    ExportKind("message", Message, 60, rows_in_workspace(Message), agents=("from_agent_id",)),
    ExportKind("delivery", Delivery, 70, rows_in_workspace(Delivery, "message__workspace"), agents=("recipient_id",)),
)


def _read_deliveries(horizon: datetime) -> DeliveryQuerySet:
    return Delivery.objects.filter(status=DeliveryStatus.READ, read_at__lt=horizon).order_by("read_at")


RETENTION_RULES = (RetentionRule("read_deliveries", _read_deliveries, "retention_read_deliveries_keep_days"),)
