"""What an agent that joins is told of the handoffs it may claim."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

from coordination.arrivals import MOST
from handoffs import selectors


class Offer(TypedDict):
    """An open handoff, in a line."""

    handoff_id: str
    title: str
    from_agent_id: str


def offered(agent_id: str, workspace_id: str, moment: datetime) -> list[Offer]:
    """The oldest that the agent may claim in a workspace."""
    page = selectors.available(workspace_id=workspace_id, agent_id=agent_id, after=0, limit=MOST)
    return [
        {"handoff_id": each.handoff_id, "title": each.title, "from_agent_id": each.from_agent_id}
        for each in page.handoffs
    ]
