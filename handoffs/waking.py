"""Wake agents of the pool for handoffs of their project that they may claim."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from handoffs import selectors
from handoffs.models import Handoff
from nexus.core.contributions import WakeKind, WakeReason

AT_ONCE = 20  # are read
MOST = 200  # of a workspace are looked at: it may have left many as they are


def calling(agent_id: str, workspaces: Collection[str]) -> Iterator[WakeReason]:
    """Yield the handoffs that the agent may claim as reasons to wake it, oldest first."""
    for workspace_id in sorted(workspaces):
        for handoff in islice(_claimable(workspace_id, agent_id), MOST):
            yield WakeReason(
                handoff.handoff_id,
                f"A handoff is offered that you may claim: handoff_claim(handoff_id={handoff.handoff_id!r}).",
                {"from": handoff.from_agent_id, "title": handoff.title},
                handoff.from_agent_id,
                handoff.created_at,
                handoff.updated_at,
            )


def _claimable(workspace_id: str, agent_id: str) -> Iterator[Handoff]:
    """Yield claimable handoffs page by page, as far as one search goes."""
    after: str | None = "0"
    while after is not None:
        page = selectors.available(
            workspace_id=workspace_id, agent_id=agent_id, after=int(after), limit=AT_ONCE, ready_only=True
        )
        yield from page.handoffs
        after = page.next_cursor if len(page.handoffs) == AT_ONCE else None


WAKES = WakeKind(
    "handoff",
    "handoffs in its project that it may claim",
    frozenset(f"handoff.{what}" for what in "created released expired reassigned restored reoffered".split())
    | {"task.ready", "task.completed"},
    calling,
)
