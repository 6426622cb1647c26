"""What retention may delete of the inbox: acknowledged deliveries; their messages stay."""

from __future__ import annotations

from datetime import datetime

from inbox.models import Delivery, DeliveryQuerySet, DeliveryStatus
from nexus.core.contributions import RetentionLane


def _read_deliveries(horizon: datetime) -> DeliveryQuerySet:
    return Delivery.objects.filter(status=DeliveryStatus.READ, read_at__lt=horizon).order_by("read_at")


LANES = (RetentionLane("read_deliveries", _read_deliveries),)
