"""Limits of agents, and the operations they may use (docs/how-to/permissions.md).

The settings `limit_…` apply to all. Values stored for a role take precedence over them, and values stored for an agent
over both, each value by itself. By default nothing is stored and every setting is 0, no limit.
Each process caches what is stored: a change applies at once in the process that made it, elsewhere with the first call
a second later.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction

from coordination import selectors
from coordination.errors import CoordinationCode
from coordination.models import AgentLimits, LimitScope
from coordination.services import audit
from nexus.core.clock import now
from nexus.core.config import TABLE, parse
from nexus.core.database.store import write
from nexus.core.fairness import RETRY_SECONDS, CallSlot, call_slots, when_refused
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.registry import TOOLSETS, Operation

PREFIX = "limit_"  # of the settings that apply to all
MOST_WAITING = 2048  # calls of one caller (a key, a login, else an address) that wait for a slot


class StoredLimits(NamedTuple):
    """The stored limits of an agent or a role. None is not set: the next scope decides."""

    values: Mapping[str, int]  # by name
    allowed: Sequence[str] | None
    refused: Sequence[str] | None


_applying = threading.Lock()  # an older read must not replace a newer one
_kept: dict[tuple[str, str], StoredLimits] = {}  # by scope and name, as this process last read it


def apply() -> None:
    """Reload the cache from the store."""
    global _kept
    with _applying:
        rows = AgentLimits.objects.values_list("scope", "name", "values", "allowed", "refused")
        _kept = {(scope, name): StoredLimits(*kept) for scope, name, *kept in rows}


def names() -> list[str]:
    """Return the names of all limits, without the prefix of the settings."""
    return sorted(name.removeprefix(PREFIX) for name in TABLE if name.startswith(PREFIX))


def limit(name: str, agent_id: str) -> int:
    """Return a limit of an agent; 0 is none. Operators, who set limits, have none."""
    if agent_id == OPERATOR_AGENT:
        return 0
    return next((kept.values[name] for kept in _of(agent_id) if name in kept.values), for_all(name))


def for_all(name: str) -> int:
    """Return the limit that applies where none is stored; 0 is none."""
    value: int = getattr(settings.NEXUS, PREFIX + name)
    return value


def exceeded(name: str, message: str, *, limit: int, used: int, retry_after: float | None) -> NexusError:
    """Return the QUOTA_EXCEEDED of a limit, to raise. `retry_after` is in seconds; None where waiting does not help."""
    seconds = None if retry_after is None else max(1, math.ceil(retry_after))
    details = {"quota": name, "limit": limit, "used": used, "retry_after_seconds": seconds}
    return NexusError(CoordinationCode.QUOTA_EXCEEDED, message, details)


def check_allowed(agent_id: str, operation: Operation[Any]) -> None:
    """Check that an agent may use an operation. Raises NOT_ALLOWED."""
    if not _kept:
        return
    kept = list(_of(agent_id))
    allowed = next((each.allowed for each in kept if each.allowed is not None), None)
    refused = next((each.refused for each in kept if each.refused is not None), ())
    called = {operation.toolset.name, operation.name}
    if called.intersection(refused) or (allowed is not None and not called.intersection(allowed)):
        raise NexusError(
            Code.NOT_ALLOWED,
            f"An operator does not let {agent_id!r} use {operation.name}. Do without it, or ask the operator.",
            {"operation": operation.name, "toolset": operation.toolset.name},
        )


def _of(agent_id: str) -> Iterator[StoredLimits]:
    """Yield what is stored for an agent, highest precedence first."""
    if not _kept:
        return
    if own := _kept.get((LimitScope.AGENT, agent_id)):
        yield own
    if any(scope == LimitScope.ROLE for scope, _ in _kept):  # otherwise the role is not read
        role = selectors.profile_of(agent_id).role
        if role is not None and (of_role := _kept.get((LimitScope.ROLE, role))):
            yield of_role


def update(*, scope: str, name: str, given: Mapping[str, Any], operator: str) -> AgentLimits:
    """Store limits for an agent or a role, all of them or none.

    `given` may hold `values` (by limit; null removes one), `allowed` and `refused` (names of toolsets and
    operations; null removes the list). What is left out stays. Raises VALIDATION_ERROR for an unknown name and for
    a value out of bounds.
    """
    for limit_name, value in given.get("values", {}).items():
        _check_value(limit_name, value)
    for which in ("allowed", "refused"):
        _check_names(which, given.get(which) or ())
    moment = now()
    with write():
        row = AgentLimits.objects.filter(scope=scope, name=name).first() or AgentLimits(scope=scope, name=name)
        before = _as_dict(row)
        changed = {**row.values, **given.get("values", {})}
        row.values = {limit_name: value for limit_name, value in changed.items() if value is not None}
        for which in ("allowed", "refused"):
            if which in given:
                setattr(row, which, given[which])
        row.updated_at, row.updated_by = moment, operator
        if _as_dict(row):
            row.save()
        elif row.pk is not None:
            AgentLimits.objects.filter(pk=row.pk).delete()
        audit.record(
            operator,
            "operator.acted",
            moment,
            operation="limits_update",
            **{"agent_id" if scope == LimitScope.AGENT else "role": name},
            limits=_as_dict(row),
            before=before,
        )
        transaction.on_commit(apply)
    return row


def _as_dict(row: AgentLimits) -> dict[str, Any]:
    """Return what is set in a row."""
    lists = {"allowed": row.allowed, "refused": row.refused}
    return {**row.values, **{which: names for which, names in lists.items() if names is not None}}


def _check_value(name: str, value: int | None) -> None:
    if name not in names():
        raise invalid(f"There is no limit {name[:200]!r}; there are {', '.join(names())}.", field="limits")
    if value is None:
        return
    try:
        parse(PREFIX + name, str(value), name)
    except NexusError as error:
        raise invalid(error.message, field=f"limits.{name}") from None


def _check_names(which: str, given: Sequence[str]) -> None:
    known = {*TOOLSETS, *(verb for toolset in TOOLSETS.values() for verb in toolset.operations)}
    if strange := sorted(set(given) - known):
        raise invalid(f"{strange[0][:200]!r} is neither a toolset nor a verb of one.", field=which)


def slot_of(caller: str) -> CallSlot:
    """Return the slot for another call of this caller. Raises QUOTA_EXCEEDED where too many of its calls wait
    already."""
    slot = CallSlot(call_slots(), caller)
    if slot.line.waiting < MOST_WAITING:
        return slot
    for notice in when_refused:
        notice()
    raise NexusError(
        CoordinationCode.QUOTA_EXCEEDED,
        f"{MOST_WAITING} of your calls are waiting already, so this one was refused. Send fewer at once; "
        f"try again in {RETRY_SECONDS} s.",
        {"retry_after_seconds": RETRY_SECONDS},
    )
