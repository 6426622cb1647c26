"""What retention may delete of this app: the oldest of the log, and closed sessions."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from coordination.models import Event, Session, SessionStatus
from core.contributions import RetentionLane


def _events(horizon: datetime) -> QuerySet[Event]:
    return _run(Event.objects.all(), horizon)


def _first_events(horizon: datetime, most: int) -> QuerySet[Event]:
    oldest = Event.objects.order_by("event_id").values_list("event_id", flat=True).first() or 0
    return _run(Event.objects.filter(event_id__lt=oldest + most), horizon)


def _run(log: QuerySet[Event], horizon: datetime) -> QuerySet[Event]:
    """The oldest unbroken run of the log: what remains has no gap, even where the clock once went back."""
    kept = log.filter(created_at__gte=horizon).order_by("event_id").first()
    old = log.filter(created_at__lt=horizon).order_by("event_id")
    return old.filter(event_id__lt=kept.event_id) if kept else old


def _closed_sessions(horizon: datetime) -> QuerySet[Session]:
    return Session.objects.filter(status=SessionStatus.CLOSED, closed_at__lt=horizon).order_by("closed_at")


LANES = (RetentionLane("events", _events, _first_events), RetentionLane("closed_sessions", _closed_sessions))
