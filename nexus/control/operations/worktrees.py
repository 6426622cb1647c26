"""Operations on agents' worktrees: agents above show the changes, then merge, keep or discard them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from nexus.control.errors import ControlCode
from nexus.control.members import actor_of
from nexus.control.models import PoolWorktree
from nexus.control.operations.agents import COMMON, OfAgent
from nexus.control.services import worktrees
from nexus.control.toolset import IN_POOL, operation
from nexus.core.operations.caller import Caller
from nexus.core.operations.parameters import Id

REFUSALS = (*COMMON, ControlCode.WORKTREE_REFUSED)


class OfWorktree(OfAgent):
    worktree_id: Annotated[Id | None, Field(description="Which, of several of that name; else the last.")] = None


class WorktreeRow(TypedDict):
    worktree_id: str
    agent_id: str
    path: str
    branch: str
    base: Annotated[str, Field(description="The commit that it began at.")]
    origin: Annotated[str, Field(description="Where it merges into.")]
    state: str


class WorktreeDiff(WorktreeRow):
    files: list[str]
    diff: str
    truncated: bool


@operation(OfWorktree, *REFUSALS, guards=(IN_POOL,), slow=True, takes_minutes=True, read_only=True)
def pool_worktree_diff(p: OfWorktree, caller: Caller) -> WorktreeDiff:
    """Return what an agent changed in its worktree, committed or not."""
    row, difference = worktrees.difference(actor_of(caller), p.agent_id, p.worktree_id)
    return {**_row(row), "files": difference.files, "diff": difference.diff, "truncated": difference.cut}


class Merged(WorktreeRow):
    merged: bool
    commit: str | None
    conflicts: Annotated[list[str], Field(description="Files; with any, nothing was merged.")]


@operation(OfWorktree, *REFUSALS, guards=(IN_POOL,), slow=True, takes_minutes=True, own_transaction=True)
def pool_worktree_merge(p: OfWorktree, caller: Caller) -> Merged:
    """Merge an agent's worktree, uncommitted work included, into the branch it came from; all of it or nothing."""
    row, merge = worktrees.merge(actor_of(caller), p.agent_id, p.worktree_id)
    return {
        **_row(row),
        "merged": merge.commit is not None,
        "commit": merge.commit,
        "conflicts": merge.conflicts,
    }


@operation(
    OfWorktree, *REFUSALS, guards=(IN_POOL,), slow=True, takes_minutes=True, own_transaction=True, idempotent=True
)
def pool_worktree_keep(p: OfWorktree, caller: Caller) -> WorktreeRow:
    """Commit an agent's changes in its worktree on its branch, and keep both."""
    return _row(worktrees.keep(actor_of(caller), p.agent_id, p.worktree_id))


class Discard(OfWorktree):
    changes_too: Annotated[bool, Field(description="Even if it holds unmerged changes; a ref keeps them.")] = False
    lost_too: Annotated[bool, Field(description="Even what no ref can keep: see the refusal.")] = False


@operation(Discard, *REFUSALS, guards=(IN_POOL,), slow=True, takes_minutes=True, own_transaction=True, destructive=True)
def pool_worktree_discard(p: Discard, caller: Caller) -> WorktreeRow:
    """Remove the worktree and branch of an agent that ended; work that nobody merged, or agreed to lose, is refused."""
    row = worktrees.discard(actor_of(caller), p.agent_id, p.worktree_id, changes_too=p.changes_too, lost_too=p.lost_too)
    return _row(row)


def _row(row: PoolWorktree) -> WorktreeRow:
    return {
        "worktree_id": row.pk,
        "agent_id": row.agent.agent_id,
        "path": row.path,
        "branch": row.branch,
        "base": row.base,
        "origin": row.origin,
        "state": row.state,
    }
