"""What retention may delete of this app: reservations that ended."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from nexus.core.contributions import RetentionLane
from nexus.reservations.models import Reservation


def _ended(horizon: datetime) -> QuerySet[Reservation]:
    return Reservation.objects.filter(released_at__lt=horizon).order_by("released_at")


LANES = (RetentionLane("ended_file_reservations", _ended),)
