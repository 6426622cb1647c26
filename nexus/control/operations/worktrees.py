"""Operations on agents' worktrees: agents above show the changes, then merge, keep or discard them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from nexus.control.errors import ControlCode
from nexus.control.models import PoolWorktree, WorktreeMerge
from nexus.control.operations.agents import COMMON, OfAgent
from nexus.control.permissions.members import actor_of
from nexus.control.toolset import IN_POOL, operation
from nexus.control.worktrees import lane, worktrees
from nexus.control.worktrees.merging import MergeConflict
from nexus.control.worktrees.trees import Survey
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Limit, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.core.unified_diff import ChangedFile

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
    why_not: Annotated[
        str, Field(description="Why it cannot be merged; the diff is then of the work alone. Empty: it can.")
    ]
    files: list[str]
    changes: Annotated[list[ChangedFile], Field(description="The same files, as git's raw records.")]
    diff: str
    truncated: bool


@operation(OfWorktree, *REFUSALS, requires=(IN_POOL,), slow=True, takes_minutes=True, read_only=True)
def pool_worktree_diff(p: OfWorktree, caller: Caller) -> WorktreeDiff:
    """Return what the merge of an agent's worktree would change where it came from, uncommitted work included."""
    return worktree_diff(*worktrees.compare(actor_of(caller), p.agent_id, p.worktree_id))


def worktree_diff(row: PoolWorktree, survey: Survey) -> WorktreeDiff:
    return {
        **worktree_row(row),
        "why_not": survey.why_not,
        "files": [file["path"] for file in survey.files],
        "changes": survey.files,
        "diff": survey.diff,
        "truncated": survey.cut,
    }


@operation(
    OfWorktree, *REFUSALS, requires=(IN_POOL,), slow=True, takes_minutes=True, own_transaction=True, idempotent=True
)
def pool_worktree_keep(p: OfWorktree, caller: Caller) -> WorktreeRow:
    """Commit an agent's changes in its worktree on its branch, and keep both."""
    return worktree_row(worktrees.keep(actor_of(caller), p.agent_id, p.worktree_id))


class Discard(OfWorktree):
    changes_too: Annotated[bool, Field(description="Even if it holds unmerged changes; a ref keeps them.")] = False
    lost_too: Annotated[bool, Field(description="Even what no ref can keep: see the refusal.")] = False


@operation(
    Discard, *REFUSALS, requires=(IN_POOL,), slow=True, takes_minutes=True, own_transaction=True, destructive=True
)
def pool_worktree_discard(p: Discard, caller: Caller) -> WorktreeRow:
    """Remove the worktree and branch of an agent that ended; work that nobody merged, or agreed to lose, is refused."""
    row = worktrees.discard(actor_of(caller), p.agent_id, p.worktree_id, changes_too=p.changes_too, lost_too=p.lost_too)
    return worktree_row(row)


class MergeRow(TypedDict):
    merge_id: str
    worktree_id: str
    agent_id: str
    branch: str
    repository: str
    target: Annotated[str, Field(description="The branch that it merges into.")]
    state: Annotated[str, Field(description="waiting, running, merged, returned or withdrawn.")]
    step: Annotated[str | None, Field(description="merging, checking or taking; null: it waits, or has ended.")]
    commit: Annotated[str, Field(description="The work, as it was queued.")]
    result: Annotated[str | None, Field(description="The merge, once the branch has it.")]
    cause: Annotated[str | None, Field(description="Why it came back: conflict, checks, changed or refused.")]
    why: str
    conflicts: Annotated[list[MergeConflict], Field(description="With the commits of the other side.")]
    needs_person: bool
    queued_by: str
    queued_at: Time
    ended_at: Time | None


@operation(OfWorktree, *REFUSALS, requires=(IN_POOL,), slow=True, takes_minutes=True, own_transaction=True)
def pool_worktree_queue(p: OfWorktree, caller: Caller) -> MergeRow:
    """Put an agent's worktree, as it is now, into the merge queue of the branch it came from."""
    return merge_row(lane.queue(actor_of(caller), p.agent_id, p.worktree_id))


class ListMerges(Params):
    which: Annotated[
        Literal["open", "returned", "merged", "all"],
        Field(description="open: those that wait or run, in their order; else the newest first."),
    ] = "open"
    limit: Annotated[Limit, Field(description="500 at most.")] = 50


class Merges(TypedDict):
    merges: list[MergeRow]


@operation(ListMerges, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_list_merges(p: ListMerges, caller: Caller) -> Merges:
    """List the entries of the merge queues: what waits, what runs and its step, what came back and why."""
    return {"merges": [merge_row(entry) for entry in lane.entries(p.which, min(p.limit, 500))]}


class OfMerge(Params):
    merge_id: Id


@operation(
    OfMerge,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    ControlCode.WORKTREE_REFUSED,
    requires=(OPERATORS_ONLY,),
    tool=False,
)
def pool_withdraw_merge(p: OfMerge, caller: Caller) -> MergeRow:
    """Take a waiting entry out of its merge queue; the worktree stays."""
    return merge_row(lane.withdraw(p.merge_id, operator_behind(caller)))


def merge_row(entry: WorktreeMerge) -> MergeRow:
    return {
        "merge_id": entry.pk,
        "worktree_id": entry.worktree.pk,
        "agent_id": entry.worktree.agent.agent_id,
        "branch": entry.worktree.branch,
        "repository": entry.repository,
        "target": entry.target,
        "state": entry.state,
        "step": entry.step,
        "commit": entry.commit,
        "result": entry.result if entry.state == "merged" else None,
        "cause": entry.cause,
        "why": entry.why,
        "conflicts": entry.conflicts,
        "needs_person": entry.needs_person,
        "queued_by": entry.queued_by,
        "queued_at": iso(entry.queued_at),
        "ended_at": iso(entry.ended_at) if entry.ended_at else None,
    }


def worktree_row(row: PoolWorktree) -> WorktreeRow:
    return {
        "worktree_id": row.pk,
        "agent_id": row.agent.agent_id,
        "path": row.path,
        "branch": row.branch,
        "base": row.base,
        "origin": row.origin,
        "state": row.state,
    }
