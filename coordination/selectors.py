"""The reads of this app."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache

from django.db.models import Count, QuerySet, TextField, Value
from django.db.models.functions import Cast, StrIndex

from coordination import sql
from coordination.config import CoordinationSettings
from coordination.models import Agent, Session, SessionStatus
from coordination.routing import (
    Profile,
    Tag,
    Target,
    admits_everyone,
    capability_set,
    eligible_agents,
    named_by,
    tag_set,
)
from nexus.core.operations.errors import NexusError, not_found

MOST_NAMED = 10  # the most agents, roles and capabilities of a target that are looked up one by one
PLAIN = re.compile(r"[\w .:/@+-]+", re.ASCII)  # JSON stores these characters unchanged

Row = tuple[str, str | None, str | None, str | None]

_capabilities_as_text = Cast("capabilities", TextField())
_tags_as_text = Cast("tags", TextField())


def _rows(agents: QuerySet[Agent]) -> QuerySet[Agent, Row]:
    ordered = agents.order_by("created_at", "agent_id")
    return ordered.values_list("agent_id", "role", _capabilities_as_text, _tags_as_text)


def _that_may_have(capability: str) -> QuerySet[Agent]:
    return Agent.objects.alias(position=StrIndex(_capabilities_as_text, Value(capability))).filter(position__gt=0)


def _as_profile(row: Row) -> Profile:
    capabilities = _advertised(row[2]) if row[2] else frozenset()
    return Profile(row[0], row[1], capabilities, _tagged(row[3]) if row[3] else frozenset())


@lru_cache(maxsize=4096)
def _advertised(text: str) -> frozenset[str]:
    """Return the capabilities in a profile's JSON. The cache helps because most agents of a team share theirs."""
    return capability_set(json.loads(text))


@lru_cache(maxsize=4096)
def _tagged(text: str) -> frozenset[Tag]:
    """Return the tags in a profile's JSON. The cache helps likewise."""
    return tag_set(json.loads(text))


def profile_of(agent_id: str) -> Profile:
    """Return an agent's profile for routing, registered or not."""
    row = sql.profile.first(agent_id=agent_id)
    return _as_profile(row) if row else Profile(agent_id)


def profiles() -> list[Profile]:
    """Return the profile of every registered agent, to resolve a group target."""
    return list(map(_as_profile, _rows(Agent.objects.all())))


def admitted(target: Target | None, moment: datetime) -> list[Profile]:
    """Return the registered agents that a target created now admits. Profiles of agents that it does not name are not
    read."""
    named = named_by(target, created_at=moment, now=moment)
    if named is None or sum(map(len, named)) > MOST_NAMED or not all(map(PLAIN.fullmatch, named.capabilities)):
        return eligible_agents(target, profiles(), created_at=moment, now=moment)
    rows = [row for name in named.ids for row in sql.profile(agent_id=name)]
    rows += [row for name in named.roles for row in _rows(Agent.objects.filter(role=name))]
    rows += [row for name in named.capabilities for row in _rows(_that_may_have(name))]
    near = {row[0]: _as_profile(row) for row in rows}
    return eligible_agents(target, near.values(), created_at=moment, now=moment)


def count_admitted(target: Target | None, moment: datetime) -> int:
    """Count the registered agents that a target created now admits."""
    if admits_everyone(target, created_at=moment, now=moment):
        return Agent.objects.count()
    return len(admitted(target, moment))


def get_agent(agent_id: str) -> Agent:
    """Return the agent. Raises NOT_FOUND for one that is not registered, or was deleted."""
    agent = Agent.objects.filter(pk=agent_id).first()
    if agent is None:
        raise no_agent(agent_id)
    return agent


def agents_without_key() -> list[str]:
    """Return the agents that no API key was ever issued to, oldest first."""
    keyless = Agent.objects.filter(key=None).order_by("created_at", "agent_id")
    return list(keyless.values_list("agent_id", flat=True))


def capabilities() -> dict[str, list[str]]:
    """Return every advertised capability with the agents that have it, both sorted."""
    holders: dict[str, list[str]] = defaultdict(list)
    for profile in sorted(profiles(), key=lambda profile: profile.agent_id):
        for capability in profile.capabilities:
            holders[capability].append(profile.agent_id)
    return dict(sorted(holders.items()))


def roles() -> dict[str, int]:
    """Return the number of agents by role, sorted."""
    named = Agent.objects.exclude(role=None).values_list("role").annotate(Count("pk"))
    return {role: count for role, count in named.order_by("role") if role}


def present_sessions(moment: datetime) -> QuerySet[Session]:
    """Return the active sessions with a heartbeat within presence_ttl_seconds."""
    since = moment - timedelta(seconds=CoordinationSettings.current().presence_ttl_seconds)
    return Session.objects.filter(status=SessionStatus.ACTIVE, last_heartbeat_at__gte=since)


def participants(workspace_id: str, moment: datetime) -> tuple[list[str], list[str]]:
    """Return the agents with an active session in a workspace, sorted: those present, and those with only old
    heartbeats.

    An agent is present if it has an active session with a heartbeat within presence_ttl_seconds.
    """
    horizon = moment - timedelta(seconds=CoordinationSettings.current().presence_ttl_seconds)
    present: list[str] = []
    stale: list[str] = []
    for agent_id, is_present in sql.presence(workspace_id=workspace_id, horizon=horizon):
        (present if is_present else stale).append(agent_id)
    return present, stale


def agent_exists(agent_id: str) -> bool:
    """Return whether an agent is registered and not deleted."""
    return bool(sql.known_agent(agent_id=agent_id))


def toolsets_of(agent_id: str) -> list[str] | None:
    """Return the toolsets that an agent's connections have by default."""
    return sql.toolsets.first(agent_id=agent_id)


def require_agent(agent_id: str) -> None:
    """Check that an agent is registered and not deleted. Raises NOT_FOUND."""
    if not agent_exists(agent_id):
        raise no_agent(agent_id)


def agent_hint(agent_id: str) -> str | None:
    """Return the hint for an empty answer: that there is no such agent, and which one was probably meant."""
    return None if agent_exists(agent_id) else no_agent(agent_id).message


def agent_of_key_hash(key_hash: str) -> str | None:
    """Return the agent of a key that an operator issued, or that was lent to the agent's process."""
    found = sql.issued_key(key_hash=key_hash) or sql.lent_key(key_hash=key_hash)
    return found[0][0] if found else None


# Suggestions for an agent id that does not exist.
MOST_COMPARED = 200  # the newest ids that are compared
COMPARED = 64  # letters of each: twice as many take four times as long
ALIKE = 0.87  # a letter of eight may differ
SEPARATORS = str.maketrans("", "", "-_ .")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the id that differs in case, in separators, or a little; None where there is none."""
    others = {_plain(each): each for each in known if each != name}
    near = get_close_matches(_plain(name), others, n=1, cutoff=ALIKE)
    return others[near[0]] if near else None


def _plain(name: str) -> str:
    return name.casefold().translate(SEPARATORS)[:COMPARED]


def near_agent(agent_id: str) -> str | None:
    """Return the registered agent that a caller probably meant; None where none is similar."""
    known = Agent.objects.order_by("-created_at", "-agent_id").values_list("agent_id", flat=True)[:MOST_COMPARED]
    return nearest(agent_id, known)


def no_agent(agent_id: str) -> NexusError:
    """Return a NOT_FOUND for an agent that names the one that was probably meant."""
    error = not_found("agent", agent_id)
    near = near_agent(agent_id)
    if near is None:
        return error
    return NexusError(error.code, f"{error.message} Did you mean {near!r}?", {**error.details, "did_you_mean": near})
