"""What retention may delete of the inbox: acknowledged deliveries; their messages stay."""

from __future__ import annotations

from datetime import datetime

from coordination.services.retention import lane
from inbox.models import Delivery, DeliveryQuerySet, DeliveryStatus


@lane("read_deliveries")
def _read_deliveries(horizon: datetime) -> DeliveryQuerySet:
    return Delivery.objects.filter(status=DeliveryStatus.READ, read_at__lt=horizon).order_by("read_at")
