"""Retention: deletion of finished rows that are older than their window, one batch at a time. And emptying the store.

Each app declares its rules, which select finished rows only. What no rule selects is never deleted: messages,
handoffs, tasks, channels, agents, workspaces, artifacts, open sessions, unacknowledged mail.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import OperationalError
from django.db.models import CASCADE, Model, QuerySet

from coordination.models import RetentionPass
from coordination.services import audit
from coordination.services import settings as stored_settings
from nexus.core.apps import nexus_apps
from nexus.core.clock import now
from nexus.core.database.store import store, write
from nexus.maintenance.config import MaintenanceSettings

if TYPE_CHECKING:
    from nexus.core.contributions import RetentionRule

from django.db import connection

from coordination.models import Agent, AgentKey, StoredSetting
from inbox import search

log = logging.getLogger(__name__)

BATCH = 500  # rows, in several transactions
FIRST = 50  # rows of a process's first transaction for a rule
FEWEST = 10  # rows of a transaction: on a loaded machine one with fewer takes about as long
LONGEST_SECONDS = 0.05  # of a transaction: other writers wait for it
BATCHES_AT_ONCE = 4  # per rule, in a pass for which others wait


class Pace:
    """The number of rows to delete in a transaction, by how long the last ones took."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.rows = FIRST
        self.longest = 0.0  # seconds of the longest transaction so far

    def took(self, rows: int, seconds: float) -> None:
        """Record that a transaction deleted so many rows in so many seconds; aim at half of the longest time."""
        self.longest = max(self.longest, seconds)
        aim = LONGEST_SECONDS / 2
        if seconds > aim:
            self.rows = max(FEWEST, min(self.rows, int(rows * aim / seconds)))
        elif rows >= self.rows:
            self.rows = min(2 * self.rows, BATCH)


paces: dict[str, Pace] = {}  # by rule


@cache
def rules() -> dict[str, RetentionRule]:
    """Return the rules of all apps, by name."""
    return {rule.name: rule for app in nexus_apps() for rule in app.retention_rules()}


@dataclass(frozen=True)
class Pruned:
    """What a pass did by one rule: the number of rows older than `before` that it deleted, and `found`: those and the
    remaining ones.

    The number of remaining rows may be an estimate, but is 0 only if nothing remains.
    """

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
    """Delete rows past their window, in every workspace; return the results by rule.

    `keep_days` replaces windows by rule for this pass. `max_batches` limits the batches per rule; then `found` may
    exceed `deleted`. A dry run only counts, exactly. Deletions for an `operator` are recorded in the same transaction.
    """
    outcome = {}
    for name, rule in rules().items():
        days = (keep_days or {}).get(name, _window(name))
        before = now() - timedelta(days=days)
        gone = 0 if dry_run else _delete(rule, before, max_batches, operator)
        found = rule.rows(before).count() if dry_run else gone + _left(rule, before)
        outcome[name] = Pruned(days, before, found, gone)
    return outcome


def prune_a_batch(name: str) -> None:
    """Delete at most one batch of a rule, as a background task does."""
    _delete_batch(name, _first(rules()[name], now() - timedelta(days=_window(name))))


def prune_on_start() -> None:
    """Run one bounded pass if auto_prune_on_start is set. A failure is logged and does not stop the start."""
    try:
        stored_settings.apply()
        if MaintenanceSettings.current().auto_prune_on_start:
            prune(max_batches=BATCHES_AT_ONCE)
    except Exception as error:
        log.warning("The retention pass at the start failed (%s); the server starts without it.", error)


def _window(name: str) -> int:
    keep = rules()[name].keep
    return keep if isinstance(keep, int) else int(getattr(settings.NEXUS, keep))


def _first(rule: RetentionRule, before: datetime) -> QuerySet[Any]:
    """Return the rows of the next batch, with further ones if they are quick to find."""
    return rule.first(before, BATCH) if rule.first else rule.rows(before)


def _left(rule: RetentionRule, before: datetime) -> int:
    if not _first(rule, before).exists():
        return 0
    return max(1, rule.estimate(before) if rule.estimate else rule.rows(before).count())


def _delete(rule: RetentionRule, before: datetime, max_batches: int | None, operator: str | None = None) -> int:
    deleted = batches = 0
    while batches != max_batches:
        try:
            count = _delete_batch(rule.name, _first(rule, before), operator)
        except OperationalError as error:
            if deleted and store().is_busy(error):
                break  # finished batches stay; the result says that there is more
            raise
        if not count:
            break
        deleted, batches = deleted + count, batches + 1
    return deleted


def _delete_batch(name: str, rows: QuerySet[Any], operator: str | None = None) -> int:
    """Delete up to BATCH rows and their dependents, in as many transactions as the pace requires; return the number of
    rows without the dependents."""
    if not rows.exists():
        return 0
    deleted = 0
    while deleted < BATCH:
        try:
            count, parts = _delete_some(name, rows, BATCH - deleted, operator)
        except OperationalError as error:
            if deleted and store().is_busy(error):
                break  # finished batches count; the next call gets the error
            raise
        deleted += count
        if not count and not parts:
            break
    return deleted


def _delete_some(name: str, rows: QuerySet[Any], most: int, operator: str | None) -> tuple[int, int]:
    """Delete in one transaction; return the number of rows, and of their dependents."""
    pace = paces.setdefault(name, Pace())
    room = pace.rows
    with write():  # each lets waiting writers go first
        began = pace.clock()
        permit = RetentionPass.objects.create()  # required by the log's trigger
        keys = list(rows.values_list("pk", flat=True)[: min(most, room)])
        count, parts = 0, _delete_parts(rows.model, keys, room)
        if keys and parts < room:
            fitting = keys[: room - parts]
            count = rows.model._default_manager.filter(pk__in=fitting).delete()[1].get(rows.model._meta.label, 0)
        permit.delete()
        if count and operator is not None:
            audit.record(operator, "retention.pruned", now(), deleted={name: count})
    pace.took(count + parts, pace.clock() - began)
    return count, parts


def _delete_parts(model: type[Model], keys: Sequence[Any], room: int) -> int:
    """Delete rows that depend on these, the deepest first, up to `room`; return how many. One agent may have a
    million."""
    deleted = 0
    for relation in model._meta.related_objects:
        if relation.on_delete is not CASCADE:
            continue
        part: Any = relation.related_model
        hanging = part._base_manager.filter(**{f"{relation.field.name}__in": keys}).values_list("pk", flat=True)
        while deleted < room and (found := list(hanging[: room - deleted])):
            deleted += _delete_parts(part, found, room - deleted)
            if fitting := found[: room - deleted]:
                part._base_manager.filter(pk__in=fitting).delete()
                deleted += len(fitting)
    return deleted


ALWAYS_KEPT = (StoredSetting,)  # settings belong to the hub
IDENTITIES = (Agent, AgentKey)


def reset(*, keep_agents: bool, operator: str) -> int:
    """Delete every row of Nexus's own tables and return their number.

    Operators' accounts and stored settings stay, and agents with their keys if asked. Event ids continue, so that new
    events come after a follower's cursor. The first event of the empty log says who did it.
    """
    kept = {*ALWAYS_KEPT, *(IDENTITIES if keep_agents else ())}
    models = [model for app in nexus_apps() for model in app.get_models()]
    gone = 0
    with write(), connection.cursor() as cursor:
        RetentionPass.objects.create()
        with search.emptied():
            for model in models:
                if model not in kept and model is not RetentionPass:
                    cursor.execute(f"DELETE FROM {connection.ops.quote_name(model._meta.db_table)}")  # noqa: S608
                    gone += cursor.rowcount
        RetentionPass.objects.all().delete()
        audit.record(operator, "database.reset", now(), rows=gone, kept_agents=keep_agents)
    return gone
