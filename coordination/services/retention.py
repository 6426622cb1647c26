"""Retention: what is over, and older than its window, is deleted a batch at a time (contract: Retention).

Each app contributes the lanes it owns, and only terminal ones. What no lane offers is never deleted: messages,
handoffs, tasks, channels, agents, workspaces, artifacts, open sessions, mail that is not acknowledged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import OperationalError
from django.db.models import QuerySet

from coordination.clock import now
from coordination.models import Event, RetentionPass, Session, SessionStatus
from coordination.services import settings as stored_settings
from coordination.store import is_busy, write

log = logging.getLogger(__name__)

BATCH = 500  # rows a transaction deletes: the writer's lock stays brief
BATCHES_AT_ONCE = 4  # per lane, in a pass that somebody else's work waits for

Prunable = Callable[[datetime], "QuerySet[Any]"]  # the rows older than a moment, in the order they go
LANES: dict[str, Prunable] = {}


def lane(name: str) -> Callable[[Prunable], Prunable]:
    """Register a terminal lane; its window is the setting retention_<name>_keep_days."""

    def register(prunable: Prunable) -> Prunable:
        LANES[name] = prunable
        return prunable

    return register


@lane("events")
def _events(horizon: datetime) -> QuerySet[Event]:
    """The oldest unbroken run of the log: what remains has no gap, even where the clock once went back."""
    kept = Event.objects.filter(created_at__gte=horizon).order_by("event_id").first()
    old = Event.objects.filter(created_at__lt=horizon).order_by("event_id")
    return old.filter(event_id__lt=kept.event_id) if kept else old


@lane("closed_sessions")
def _closed_sessions(horizon: datetime) -> QuerySet[Session]:
    return Session.objects.filter(status=SessionStatus.CLOSED, closed_at__lt=horizon).order_by("closed_at")


@dataclass(frozen=True)
class Pruned:
    """What a pass did in one lane: rows older than `before` that it found, and those it deleted."""

    keep_days: int
    before: datetime
    found: int
    deleted: int


def prune(
    *, keep_days: Mapping[str, int] | None = None, dry_run: bool = False, max_batches: int | None = None
) -> dict[str, Pruned]:
    """Delete what is past its window, in every workspace; the outcome by lane.

    `keep_days` replaces windows by lane for this pass; `max_batches` bounds it per lane, and then `found` exceeds
    `deleted`. A dry run counts only.
    """
    outcome = {}
    for name in LANES:
        days = (keep_days or {}).get(name, _window(name))
        before = now() - timedelta(days=days)
        rows = LANES[name](before)
        found = rows.count()
        outcome[name] = Pruned(days, before, found, 0 if dry_run else _delete(rows, found, max_batches))
    return outcome


def prune_a_batch(name: str) -> None:
    """Delete at most one batch of a lane: what a background task does at a time."""
    rows = LANES[name](now() - timedelta(days=_window(name)))
    if rows.exists():
        _delete_batch(rows)


def prune_on_start() -> None:
    """One bounded pass where auto_prune_on_start asks for it; a failure is logged, and the start goes on."""
    try:
        stored_settings.apply()
        if settings.NEXUS.auto_prune_on_start:
            prune(max_batches=BATCHES_AT_ONCE)
    except Exception as error:
        log.warning("The retention pass at the start failed (%s); the server starts without it.", error)


def _window(name: str) -> int:
    return int(getattr(settings.NEXUS, f"retention_{name}_keep_days"))


def _delete(rows: QuerySet[Any], found: int, max_batches: int | None) -> int:
    deleted = batches = 0
    while deleted < found and batches != max_batches:
        started = time.monotonic()
        try:
            count = _delete_batch(rows)
        except OperationalError as error:
            if deleted and is_busy(error):
                break  # what is done stays done, and the caller learns that there is more
            raise
        if not count:
            break  # another pass was quicker
        deleted, batches = deleted + count, batches + 1
        if deleted < found:
            time.sleep(time.monotonic() - started)  # SQLite's lock knows no queue: leave others half of the time
    return deleted


def _delete_batch(rows: QuerySet[Any]) -> int:
    with write():
        permit = RetentionPass.objects.create()  # the log's trigger asks for it
        keys = list(rows.values_list("pk", flat=True)[:BATCH])
        count: int = rows.model._default_manager.filter(pk__in=keys).delete()[0]
        permit.delete()
    return count
