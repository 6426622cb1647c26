"""What of waking needs a person: agents that a bound keeps from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inbox.picture import Picture
from nexus.control.models import PoolAgent
from nexus.control.waking import bounds
from nexus.core.contributions import Action, AttentionItem, AttentionKind, Found


def _held_agents(picture: Picture, each: int) -> Found:
    rows = PoolAgent.objects.living().exclude(held_why=None).order_by("held_at")
    needs = [
        AttentionItem(
            f"{row.agent_id} is not woken any more",
            bounds.why_held(row),
            row.agent_id,
            page_of=row.pk,
            since=row.held_at,
        )
        for row in rows[:each]
    ]
    return Found(rows.count(), needs)


def _living(agent_ids: Sequence[str]) -> Mapping[str, str]:
    return {
        name: name
        for name in PoolAgent.objects.living().filter(agent_id__in=agent_ids).values_list("agent_id", flat=True)
    }


KINDS = (
    AttentionKind(
        "held",
        "Not woken any more",
        "pause_circle",
        47,
        _held_agents,
        page="pool_agent",
        actions=("pool_resume",),
    ),
)
ACTIONS = (
    Action(
        "pool_resume",
        "Wake again",
        "resumed",
        ("agent", "agents"),
        lambda agent_id: {"agent_id": agent_id},
        _living,
        toolset="control",
    ),
)
