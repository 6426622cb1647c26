"""What of worktrees needs a person: those of agents that ended, which nobody decided about."""

from __future__ import annotations

from inbox.picture import Picture
from nexus.control.models import PoolWorktree, WorktreeState
from nexus.core.contributions import AttentionItem, AttentionKind, Found


def _left(picture: Picture, each: int) -> Found:
    left = PoolWorktree.objects.filter(state=WorktreeState.OPEN, merged_at=None, agent__ended_at__isnull=False)
    rows = left.select_related("agent").order_by("agent__ended_at")[:each]
    needs = [
        AttentionItem(
            f"{row.agent.agent_id} left {row.branch}", row.origin, page_of=row.agent.pk, since=row.agent.ended_at
        )
        for row in rows
    ]
    return Found(left.count(), needs)


KINDS = (
    AttentionKind(
        "worktrees",
        "Worktrees to merge, keep or discard",
        "account_tree",
        65,
        _left,
        page="pool_worktree",
        look="What it changed",
    ),
)
