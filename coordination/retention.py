"""What retention may delete of this app: the oldest of the log, and closed sessions."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from coordination.log.selectors import first_event_at, newest_event_id
from coordination.models import Event, Session, SessionStatus
from nexus.core.contributions import RetentionLane


def _events(horizon: datetime) -> QuerySet[Event]:
    return _run(Event.objects.all(), horizon)


def _first_events(horizon: datetime, most: int) -> QuerySet[Event]:
    return _run(Event.objects.filter(event_id__lt=_oldest_event_id() + most), horizon)


def _estimated_events(horizon: datetime) -> int:
    """By the ids from the oldest event to the first that is kept, if the clock never went back."""
    return (first_event_at(horizon) or newest_event_id() + 1) - _oldest_event_id()


def _oldest_event_id() -> int:
    return Event.objects.order_by("event_id").values_list("event_id", flat=True).first() or 0


def _run(log: QuerySet[Event], horizon: datetime) -> QuerySet[Event]:
    """The oldest unbroken run of the log: what remains has no gap, even where the clock once went back."""
    kept = log.filter(created_at__gte=horizon).order_by("event_id").first()
    old = log.filter(created_at__lt=horizon).order_by("event_id")
    return old.filter(event_id__lt=kept.event_id) if kept else old


def _closed_sessions(horizon: datetime) -> QuerySet[Session]:
    return Session.objects.filter(status=SessionStatus.CLOSED, closed_at__lt=horizon).order_by("closed_at")


LANES = (
    RetentionLane("events", _events, _first_events, _estimated_events),
    RetentionLane("closed_sessions", _closed_sessions),
)
