"""What export and retention need of this app: kinds and retention rules."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from coordination.log.selectors import first_event_at, newest_event_id
from coordination.models import Agent, Artifact, Channel, Event, Session, SessionStatus, Workspace
from nexus.core.contributions import ExportKind, RetentionRule, rows_in_workspace

# Events come last: the search index reads the messages that they refer to. The export finds a workspace's agents from
# the rows of all kinds.
KINDS = (
    ExportKind("workspace", Workspace, 10, rows_in_workspace(Workspace, "pk")),
    ExportKind("agent", Agent, 20, lambda workspace_id: Agent._base_manager.none()),
    ExportKind("session", Session, 30, rows_in_workspace(Session), agents=("agent_id",)),
    ExportKind("channel", Channel, 50, rows_in_workspace(Channel)),
    ExportKind("artifact", Artifact, 90, rows_in_workspace(Artifact), agents=("created_by",)),
    ExportKind("event", Event, 1000, rows_in_workspace(Event), agents=("actor_agent_id",)),
)


def _events(horizon: datetime) -> QuerySet[Event]:
    return _run(Event.objects.all(), horizon)


def _first_events(horizon: datetime, most: int) -> QuerySet[Event]:
    return _run(Event.objects.filter(event_id__lt=_oldest_event_id() + most), horizon)


def _estimated_events(horizon: datetime) -> int:
    """Estimate the number of events before the horizon: the ids between the oldest event and the first one that is
    kept. It is exact if the clock never went back."""
    return (first_event_at(horizon) or newest_event_id() + 1) - _oldest_event_id()


def _oldest_event_id() -> int:
    return Event.objects.order_by("event_id").values_list("event_id", flat=True).first() or 0


def _run(log: QuerySet[Event], horizon: datetime) -> QuerySet[Event]:
    """Return the oldest contiguous part of the log that may go, so that the rest has no gap even where the clock went
    back."""
    kept = log.filter(created_at__gte=horizon).order_by("event_id").first()
    old = log.filter(created_at__lt=horizon).order_by("event_id")
    return old.filter(event_id__lt=kept.event_id) if kept else old


def _closed_sessions(horizon: datetime) -> QuerySet[Session]:
    return Session.objects.filter(status=SessionStatus.CLOSED, closed_at__lt=horizon).order_by("closed_at")


RETENTION_RULES = (
    RetentionRule("events", _events, "retention_events_keep_days", _first_events, _estimated_events),
    RetentionRule("closed_sessions", _closed_sessions, "retention_closed_sessions_keep_days"),
)
