"""What an agent may do at most, and which verbs it may use (docs/how-to/set-limits.md).

The settings `limit_…` hold for all; what is stored for a role goes over them, and what is stored for an agent over
that, each value by itself. Nothing is stored and every setting is 0, no limit, until an operator wants it.
A process keeps what is stored: at once where it was changed, elsewhere with the first call a second later.
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
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.registry import TOOLSETS, Operation

PREFIX = "limit_"  # of the settings that hold for all


class Kept(NamedTuple):
    """What is stored for an agent or a role; None is not set, and what stands below counts."""

    values: Mapping[str, int]  # by name
    allowed: Sequence[str] | None
    refused: Sequence[str] | None


_applying = threading.Lock()  # an older reading must not replace a newer one
_kept: dict[tuple[str, str], Kept] = {}  # by scope and its name, as this process last saw it


def apply() -> None:
    """Take over what is stored now."""
    global _kept
    with _applying:
        rows = AgentLimits.objects.values_list("scope", "name", "values", "allowed", "refused")
        _kept = {(scope, name): Kept(*kept) for scope, name, *kept in rows}


def names() -> list[str]:
    """The limits that there are, by their names without the prefix of the settings."""
    return sorted(name.removeprefix(PREFIX) for name in TABLE if name.startswith(PREFIX))


def limit(name: str, agent_id: str) -> int:
    """The limit of this name for an agent; 0 is none. Operators, who set them, have none."""
    if agent_id == OPERATOR_AGENT:
        return 0
    return next((kept.values[name] for kept in _of(agent_id) if name in kept.values), for_all(name))


def for_all(name: str) -> int:
    """The limit that holds where none is stored; 0 is none."""
    value: int = getattr(settings.NEXUS, PREFIX + name)
    return value


def exceeded(name: str, message: str, *, limit: int, used: int, retry_after: float | None) -> NexusError:
    """The QUOTA_EXCEEDED of a limit; raise what this returns. `retry_after` in seconds: None where time changes
    nothing."""
    seconds = None if retry_after is None else max(1, math.ceil(retry_after))
    details = {"quota": name, "limit": limit, "used": used, "retry_after_seconds": seconds}
    return NexusError(CoordinationCode.QUOTA_EXCEEDED, message, details)


def check_allowed(agent_id: str, operation: Operation[Any]) -> None:
    """Raises NOT_ALLOWED where an operator keeps an agent from a verb."""
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


def _of(agent_id: str) -> Iterator[Kept]:
    """What is stored for an agent, what counts first."""
    if not _kept:
        return
    if own := _kept.get((LimitScope.AGENT, agent_id)):
        yield own
    if any(scope == LimitScope.ROLE for scope, _ in _kept):  # else its role is not asked for
        role = selectors.profile_of(agent_id).role
        if role is not None and (of_role := _kept.get((LimitScope.ROLE, role))):
            yield of_role


def update(*, scope: str, name: str, given: Mapping[str, Any], operator: str) -> AgentLimits:
    """Store limits for an agent or a role, all of what is given or nothing.

    `given` may hold `values` (by limit; null takes one back), `allowed` and `refused` (names of toolsets and verbs;
    null takes the list back). What is left out stays. Raises VALIDATION_ERROR for a name that there is not and for a
    value out of bounds.
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
    """What is set in a row."""
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
