"""Retention: what is over, and older than its window, is deleted a batch at a time.

Each app contributes the lanes it owns, and only terminal ones. What no lane offers is never deleted: messages,
handoffs, tasks, channels, agents, workspaces, artifacts, open sessions, mail that is not acknowledged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import OperationalError
from django.db.models import QuerySet

from coordination.models import RetentionPass
from coordination.services import audit
from coordination.services import settings as stored_settings
from core.apps import nexus_apps
from core.clock import now
from core.database import store, write
from maintenance.config import MaintenanceSettings

if TYPE_CHECKING:
    from core.contributions import RetentionLane

log = logging.getLogger(__name__)

BATCH = 500  # rows a transaction deletes: the writer's lock stays brief
BATCHES_AT_ONCE = 4  # per lane, in a pass that somebody else's work waits for


@cache
def lanes() -> dict[str, RetentionLane]:
    """What every app contributes, by name."""
    return {lane.name: lane for app in nexus_apps() for lane in app.retention_lanes()}


@dataclass(frozen=True)
class Pruned:
    """What a pass did in one lane: rows older than `before` that it found, and those it deleted."""

    keep_days: int
    before: datetime
    found: int
    deleted: int


def prune(
    *,
    keep_days: Mapping[str, int] | None = None,
    dry_run: bool = False,
    max_batches: int | None = None,
    operator: str | None = None,
) -> dict[str, Pruned]:
    """Delete what is past its window, in every workspace; the outcome by lane.

    `keep_days` replaces windows by lane for this pass; `max_batches` bounds it per lane, and then `found` exceeds
    `deleted`. A dry run counts only. What a batch deletes for an `operator` is recorded with it, all or nothing.
    """
    outcome = {}
    for name, lane in lanes().items():
        days = (keep_days or {}).get(name, _window(name))
        before = now() - timedelta(days=days)
        rows = lane.rows(before)
        found = rows.count()
        gone = 0 if dry_run else _delete(name, rows, found, max_batches, operator)
        outcome[name] = Pruned(days, before, found, gone)
    return outcome


def prune_a_batch(name: str) -> None:
    """Delete at most one batch of a lane: what a background task does at a time."""
    rows = lanes()[name].rows(now() - timedelta(days=_window(name)))
    if rows.exists():
        _delete_batch(name, rows)


def prune_on_start() -> None:
    """One bounded pass where auto_prune_on_start asks for it; a failure is logged, and the start goes on."""
    try:
        stored_settings.apply()
        if MaintenanceSettings.current().auto_prune_on_start:
            prune(max_batches=BATCHES_AT_ONCE)
    except Exception as error:
        log.warning("The retention pass at the start failed (%s); the server starts without it.", error)


def _window(name: str) -> int:
    return int(getattr(settings.NEXUS, f"retention_{name}_keep_days"))


def _delete(name: str, rows: QuerySet[Any], found: int, max_batches: int | None, operator: str | None) -> int:
    deleted = batches = 0
    while deleted < found and batches != max_batches:
        try:
            count = _delete_batch(name, rows, operator)
        except OperationalError as error:
            if deleted and store().is_busy(error):
                break  # what is done stays done, and the caller learns that there is more
            raise
        if not count:
            break  # another pass was quicker
        deleted, batches = deleted + count, batches + 1
    return deleted


def _delete_batch(name: str, rows: QuerySet[Any], operator: str | None = None) -> int:
    with write():  # whoever waits in the writers' queue comes before the next batch
        permit = RetentionPass.objects.create()  # the log's trigger asks for it
        keys = list(rows.values_list("pk", flat=True)[:BATCH])
        count: int = rows.model._default_manager.filter(pk__in=keys).delete()[0]
        permit.delete()
        if count and operator is not None:
            audit.record(operator, "retention.pruned", now(), deleted={name: count})
    return count
