"""The reads of this app."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta

from django.db.models import Count, Max

from coordination.config import CoordinationSettings
from coordination.models import Agent, Session, SessionStatus
from coordination.routing import Profile, capability_set
from core.database.prepared import Select, Slot
from core.operations.errors import not_found

_profile = Select(lambda: Agent.objects.filter(pk=Slot("agent_id")).values_list("role", "capabilities"))
_profiles = Select(
    lambda: Agent.objects.order_by("created_at", "agent_id").values_list("agent_id", "role", "capabilities")
)


def profile_of(agent_id: str) -> Profile:
    """What routing knows of an agent, registered or not."""
    row = _profile.first(agent_id=agent_id)
    return Profile(agent_id, row[0], capability_set(row[1])) if row else Profile(agent_id)


def profiles() -> list[Profile]:
    """Every registered agent, for resolving a group target."""
    return [Profile(agent_id, role, capability_set(capabilities)) for agent_id, role, capabilities in _profiles()]


def found(agent_id: str) -> Agent:
    """The agent. Raises NOT_FOUND for one that is not registered, or was deleted."""
    agent = Agent.objects.filter(pk=agent_id).first()
    if agent is None:
        raise not_found("agent", agent_id)
    return agent


def agents_without_key() -> list[str]:
    """The agents that no API key was ever issued to, oldest first."""
    keyless = Agent.objects.filter(key=None).order_by("created_at", "agent_id")
    return list(keyless.values_list("agent_id", flat=True))


def capabilities() -> dict[str, list[str]]:
    """Every advertised capability with the agents that have it, both sorted."""
    holders: dict[str, list[str]] = defaultdict(list)
    for profile in sorted(profiles(), key=lambda profile: profile.agent_id):
        for capability in profile.capabilities:
            holders[capability].append(profile.agent_id)
    return dict(sorted(holders.items()))


def roles() -> dict[str, int]:
    """By role that agents have, how many have it; sorted."""
    named = Agent.objects.exclude(role=None).values_list("role").annotate(Count("pk"))
    return {role: count for role, count in named.order_by("role") if role}


def participants(workspace_id: str, moment: datetime) -> tuple[list[str], list[str]]:
    """The agents with an active session in a workspace, sorted: those present, and those whose every heartbeat is old.

    Presence is one predicate: an active session with a heartbeat within presence_ttl_seconds.
    """
    horizon = moment - timedelta(seconds=CoordinationSettings.current().presence_ttl_seconds)
    heartbeats = (
        Session.objects.filter(workspace_id=workspace_id, status=SessionStatus.ACTIVE)
        .values_list("agent_id")
        .annotate(latest=Max("last_heartbeat_at"))
        .order_by("agent_id")
    )
    present: list[str] = []
    stale: list[str] = []
    for agent_id, latest in heartbeats:
        (present if latest >= horizon else stale).append(agent_id)
    return present, stale
