"""What retention needs of connected forges."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from nexus.core.contributions import RetentionLane
from nexus.forges.models import ForgeDelivery


def _old(horizon: datetime) -> QuerySet[ForgeDelivery]:
    return ForgeDelivery.objects.filter(received_at__lt=horizon).order_by("received_at")


LANES = (RetentionLane("forge_deliveries", _old, keep=30),)
