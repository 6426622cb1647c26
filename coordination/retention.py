"""What retention may delete of this app: the oldest of the log, and closed sessions."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from coordination.models import Event, Session, SessionStatus
from core.contributions import RetentionLane


def _events(horizon: datetime) -> QuerySet[Event]:
    """The oldest unbroken run of the log: what remains has no gap, even where the clock once went back."""
    kept = Event.objects.filter(created_at__gte=horizon).order_by("event_id").first()
    old = Event.objects.filter(created_at__lt=horizon).order_by("event_id")
    return old.filter(event_id__lt=kept.event_id) if kept else old


def _closed_sessions(horizon: datetime) -> QuerySet[Session]:
    return Session.objects.filter(status=SessionStatus.CLOSED, closed_at__lt=horizon).order_by("closed_at")


LANES = (RetentionLane("events", _events), RetentionLane("closed_sessions", _closed_sessions))
