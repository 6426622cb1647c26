"""Agents: global identities, and the keys that bind a connection to one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import SynchronousOnlyOperation
from django.db import OperationalError

from coordination import sql
from coordination.models import Agent
from coordination.routing import MAX_NAME, capability_set, named_in, parse_tags
from coordination.services import tags as catalog
from nexus.core.clock import now
from nexus.core.database.sql import is_on_loop
from nexus.core.database.store import store, write
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.registry import choose
from nexus.core.size_limits import json_within_limit

FRESH = timedelta(seconds=1)  # a stored time younger than this is not updated


def register(*, agent_id: str, given: dict[str, Any], by_operator: bool = False) -> Agent:
    """Create or update an identity.

    `given` holds the role, capabilities or metadata that the call named; the others keep their value. An operator
    restores a deleted agent this way, with its mail. Raises VALIDATION_ERROR for malformed capabilities,
    CONTENT_TOO_LARGE for oversized capabilities or metadata, NOT_OWNER for the id of a deleted agent.
    """
    profile, moment = checked_profile(given), now()
    changes = {**profile, "updated_at": moment, "last_seen_at": moment, "deleted_at": None}
    with write(agent_id):
        check_tags(profile)
        if not by_operator and Agent.everyone.filter(pk=agent_id).exclude(deleted_at=None).exists():
            raise NexusError(
                Code.NOT_OWNER,
                f"An operator deleted the agent {agent_id!r}; only an operator brings it back, with agent_create. "
                "Register under another id.",
                {"agent_id": agent_id},
            )
        agent, _ = Agent.everyone.update_or_create(
            agent_id=agent_id, defaults=changes, create_defaults={**changes, "created_at": moment}
        )
    return agent


def checked_profile(given: dict[str, Any]) -> dict[str, Any]:
    """Return a profile with its tags as they are stored. Raises VALIDATION_ERROR for malformed capabilities and tags
    and for unknown toolsets, CONTENT_TOO_LARGE for oversized capabilities or metadata, CONFIG_ERROR for toolsets that
    clash."""
    if given.get("toolsets"):
        choose(given["toolsets"], unknown=Code.VALIDATION_ERROR)
    named = capability_set(given.get("capabilities"))
    for field in ("capabilities", "metadata"):
        json_within_limit(given.get(field), field)
    if any(len(name) > MAX_NAME for name in named):  # a target could not name it
        raise invalid(f"capabilities must have at most {MAX_NAME} characters each.", field="capabilities")
    if "tags" not in given:
        return given
    tags = parse_tags(given["tags"])
    json_within_limit(tags, "tags")
    return {**given, "tags": tags}


def check_tags(profile: dict[str, Any]) -> None:
    """Check that the catalog has the tags of a profile, inside the transaction that stores it: nobody deletes one after
    that. Raises VALIDATION_ERROR."""
    catalog.check(named_in(profile.get("tags") or {}), "tags")


def touch(agent_id: str, moment: datetime) -> None:
    """Record the time of the agent's last action, inside the transaction of that action; nothing for an unregistered
    agent.

    It also renews the agent's leases.
    """
    sql.see(agent_id=agent_id, moment=moment)
    renew_leases(agent_id, moment)


def touch_after_read(agent_id: str) -> None:
    """Record the time of the agent's last action after a read: not when the stored time is recent, nor while a writer
    holds the store.

    Hundreds of waits may wake at once, and a durable write for each would delay the senders.
    """
    moment = now()
    for last in sql.last_seen(agent_id=agent_id):
        if last is None or not moment - FRESH < last <= moment:  # a time in the future: the clock was set back
            _touch_if_free(agent_id, moment)


def _touch_if_free(agent_id: str, moment: datetime) -> None:
    if is_on_loop():
        raise SynchronousOnlyOperation("a thread writes")
    with store().without_waiting():
        try:
            touch(agent_id, moment)
        except OperationalError:
            return


def hash_secret(secret: str) -> str:
    """Return the hash under which keys and session secrets are stored. Both are random, so a plain SHA-256 suffices."""
    return hashlib.sha256(secret.encode()).hexdigest()


RENEW_EVERY = timedelta(seconds=3)  # per process: more than half of the shortest lease is left by then
REMEMBERED = 10_000  # agents

Renew = Callable[[str, datetime], None]

_renewals: dict[str, Renew] = {}
_renewed: dict[str, datetime] = {}  # by agent, when its leases were last renewed in this process


def register_renewal(name: str, renew: Renew) -> None:
    """Register the function that renews an agent's running leases inside the transaction of its act."""
    _renewals[name] = renew


def renew_leases(agent_id: str, moment: datetime) -> None:
    """Renew the leases of an agent that acted or sent a heartbeat. Call it inside a transaction."""
    last = _renewed.get(agent_id)
    if last is not None and moment - RENEW_EVERY < last <= moment:  # a time in the future: the clock was set back
        return
    if len(_renewed) >= REMEMBERED:
        _renewed.clear()
    _renewed[agent_id] = moment
    for renew in _renewals.values():
        renew(agent_id, moment)
