"""The tasks that a person must look at."""

from __future__ import annotations

from coordination.models import Agent
from coordination.presence import Presence
from handoffs.debts import patience
from inbox.monitoring import Picture
from nexus.core.contributions import AttentionItem, AttentionKind, Found
from nexus.planning.debts import owed


def _left(picture: Picture, each: int) -> Found:
    """Find tasks in progress whose agent is gone. They have no lease that expires, and nobody else begins them. Tasks
    with a handoff are left out: the handoff reports them."""
    gone = {state.agent_id for state in picture.agents if state.presence is Presence.OFFLINE}
    gone.update(Agent.everyone.exclude(deleted_at=None).values_list("pk", flat=True))
    needs = [
        AttentionItem(debt.what, f"{debt.agent_id} has it in progress and is gone", debt.identifier, since=debt.since)
        for debt in owed(None, picture.moment)
        if debt.agent_id in gone and debt.since <= picture.moment - patience()
    ]
    return Found(len(needs), needs[:each])


KINDS = (
    AttentionKind(
        "left-tasks",
        "In progress, and nobody there",
        "assignment_late",
        46,
        _left,
        page="task",
        look="Change it",
        command="nexus tasks",
    ),
)
