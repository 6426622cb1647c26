"""The handoffs that an agent may claim: those in the answer to `join`, and those that wake an agent of the pool."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import islice
from typing import TypedDict

from coordination.join_answer import MOST
from coordination.provenance import Behalf, on_behalf_of, provenance_row, sender_in_words
from handoffs import selectors
from handoffs.models import Handoff
from nexus.core.contributions import WakeKind, WakeReason

AT_ONCE = 20  # are read
LOOKED_AT = 200  # of a workspace are looked at: it may have left many as they are


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


def calling(agent_id: str, workspaces: Collection[str]) -> Iterator[WakeReason]:
    """Yield the handoffs that the agent may claim as reasons to wake it, oldest first."""
    for workspace_id in sorted(workspaces):
        for handoff, behalf in islice(_claimable(workspace_id, agent_id), LOOKED_AT):
            yield WakeReason(
                handoff.handoff_id,
                f"A handoff is offered that you may claim: handoff_claim(handoff_id={handoff.handoff_id!r}). "
                f"Its creator: {sender_in_words(provenance_row(handoff, behalf))}.",
                {"from": handoff.from_agent_id, "title": handoff.title},
                handoff.from_agent_id,
                handoff.created_at,
                handoff.updated_at,
            )


def _claimable(workspace_id: str, agent_id: str) -> Iterator[tuple[Handoff, Behalf]]:
    """Yield claimable handoffs page by page, as far as one search goes, and on whose behalf those of the page are."""
    after: str | None = "0"
    while after is not None:
        page = selectors.available(
            workspace_id=workspace_id, agent_id=agent_id, after=int(after), limit=AT_ONCE, ready_only=True
        )
        behalf = on_behalf_of(page.handoffs)
        yield from ((handoff, behalf) for handoff in page.handoffs)
        after = page.next_cursor if len(page.handoffs) == AT_ONCE else None


WAKES = WakeKind(
    "handoff",
    "handoffs in its project that it may claim",
    frozenset(f"handoff.{what}" for what in "created unblocked released expired reassigned reoffered".split())
    | {"task.ready", "task.completed"},
    calling,
)
