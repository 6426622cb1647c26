"""Operations on the review of finished work: people comment, send, approve and abandon; agents answer."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.comments import LONGEST_TEXT, LeftOff
from handoffs import check_runs, selectors
from handoffs.check_runs import Checked
from handoffs.models import MAX_TITLE, Handoff
from handoffs.transitions import FinishedTask
from nexus.control.errors import ControlCode
from nexus.control.models import ReviewComment
from nexus.control.operations.agents import COMMON
from nexus.control.operations.worktrees import (
    REFUSALS,
    MergeRow,
    OfWorktree,
    WorktreeDiff,
    WorktreeRow,
    merge_row,
    worktree_diff,
    worktree_row,
)
from nexus.control.permissions.members import actor_of
from nexus.control.review import reviews
from nexus.control.toolset import IN_POOL, operation
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Limit, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY

LISTED, MOST_LISTED = 50, 500
MOST_LINE = 2**31 - 1
NO_CHECKS: Checked = {"checks": []}
DECIDING = (*REFUSALS, Code.INVALID_TRANSITION)


class CommentRow(TypedDict):
    comment_id: str
    path: Annotated[str | None, Field(description="null: all of the work.")]
    side: Annotated[str | None, Field(description="old or new; null: the whole file.")]
    line: int | None
    last_line: int | None
    quote: Annotated[str, Field(description="The hunk, as it was when the comment was written.")]
    text: str
    author: str
    written_at: Time
    sent_at: Annotated[Time | None, Field(description="null: a draft.")]
    run_id: Annotated[str | None, Field(description="The run that brought it to its agent.")]
    outcome: Annotated[str | None, Field(description="done, declined or asked, as the agent says.")]
    words: str
    answered_at: Time | None


class WorkOf(TypedDict):
    """The handoff that work is for."""

    handoff_id: str
    title: str
    status: str
    result: str | None


class WaitingReview(WorktreeRow):
    files: Annotated[int, Field(description="Changed files, when the hub looked last.")]
    added: int
    removed: int
    handoff: WorkOf | None
    unblocks: Annotated[int, Field(description="Handoffs and planned tasks that wait for it, also by way of others.")]
    drafts: Annotated[int, Field(description="Comments that are not sent yet.")]
    since: Time


class WaitingTask(TypedDict):
    """A submitted task that waits for a person, and whose work is in no worktree."""

    project_root: str
    id: Annotated[int, Field(description="Its number: task_approve and task_send_back take it.")]
    claim_epoch: int
    title: Annotated[str, Field(description=f"Its first {MAX_TITLE} characters.")]
    agent_id: Annotated[str | None, Field(description="Who did it; null if that is unknown.")]
    why: Annotated[str, Field(description="The reason why it needs a person.")]
    unblocks: Annotated[int, Field(description="Planned tasks that wait for it, also by way of others.")]
    since: Time


class ListReviews(Params):
    limit: Annotated[Limit, Field(description=f"{MOST_LISTED} at most.")] = LISTED


class Reviews(TypedDict):
    count: int
    reviews: list[WaitingReview | WaitingTask]


@operation(ListReviews, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_list_reviews(p: ListReviews, caller: Caller) -> Reviews:
    """List the finished work that waits for review: first what most other work waits for, then the oldest."""
    found = reviews.desk()
    shown = found[: min(p.limit, MOST_LISTED)]
    drafts = reviews.count_drafts([each.row for each in shown if isinstance(each, reviews.ReviewItem)])
    rows = [
        _waiting_row(each, drafts.get(each.row.pk, 0)) if isinstance(each, reviews.ReviewItem) else _waiting_task(each)
        for each in shown
    ]
    return {"count": len(found), "reviews": rows}


def _waiting_row(each: reviews.ReviewItem, drafts: int) -> WaitingReview:
    return {
        **worktree_row(each.row),
        "files": each.row.changed_files,
        "added": each.row.added,
        "removed": each.row.removed,
        "handoff": _work_of(each.handoff),
        "unblocks": each.unblocks,
        "drafts": drafts,
        "since": iso(each.row.agent.last_action_at),
    }


def _waiting_task(each: FinishedTask) -> WaitingTask:
    return {
        "project_root": each.project_root,
        "id": each.number,
        "claim_epoch": each.claim_epoch,
        "title": each.title,
        "agent_id": each.doer,
        "why": each.why,
        "unblocks": each.unblocks,
        "since": iso(each.since),
    }


class Review(WorktreeDiff, Checked):
    agent_ended: bool
    summary: Annotated[str, Field(description="What the agent said last.")]
    run_id: Annotated[str | None, Field(description="The run in which it said so.")]
    handoff: WorkOf | None
    seen: Annotated[str, Field(description="git's id of what is shown; approval is of that alone.")]
    unshown: Annotated[list[str], Field(description="Files that the diff does not show, or not all of.")]
    comments: list[CommentRow]
    comments_left_off: NotRequired[LeftOff]


@operation(
    OfWorktree, *REFUSALS, requires=(OPERATORS_ONLY, IN_POOL), tool=False, slow=True, takes_minutes=True, read_only=True
)
def pool_get_review(p: OfWorktree, caller: Caller) -> Review:
    """Return an agent's work as a person decides about it: summary, checks with their facts, diff and comments."""
    shown = reviews.show(p.agent_id, p.worktree_id, operator_behind(caller))
    checks = check_runs.of_results(selectors.check_runs_of(shown.handoff)) if shown.handoff else NO_CHECKS
    data: Review = {
        **worktree_diff(shown.row, shown.survey),
        "agent_ended": shown.row.agent.ended_at is not None,
        "summary": shown.summary,
        "run_id": shown.run.pk if shown.run else None,
        "handoff": _work_of(shown.handoff),
        **checks,  # type: ignore[typeddict-item]  # the other key is added below
        "seen": shown.survey.content,
        "unshown": shown.survey.unshown,
        "comments": [_comment_row(each) for each in shown.comments],
    }
    return {**data, "comments_left_off": shown.older} if shown.older else data


class AddComment(OfWorktree):
    text: Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
    path: Annotated[str | None, Field(max_length=4096, description="A changed file; none: all of the work.")] = None
    line: Annotated[int | None, Field(ge=1, le=MOST_LINE, description="The first line; none: the whole file.")] = None
    last_line: Annotated[int | None, Field(ge=1, le=MOST_LINE, description="The last line; else the first.")] = None
    side: Annotated[
        Literal["old", "new"] | None, Field(description="Whose line numbers: before or after the change.")
    ] = None
    seen: Annotated[Id | None, Field(description="The `seen` of what you read: refused if it changed.")] = None


@operation(
    AddComment,
    *DECIDING,
    Code.CONTENT_TOO_LARGE,
    requires=(OPERATORS_ONLY, IN_POOL),
    tool=False,
    slow=True,
    takes_minutes=True,
    own_transaction=True,
)
def pool_add_comment(p: AddComment, caller: Caller) -> CommentRow:
    """Draft a comment on lines of an agent's diff, on a file, or on all of its work. The hub quotes the lines."""
    drafted = reviews.comment(
        agent_id=p.agent_id,
        worktree_id=p.worktree_id,
        at=reviews.place(p.path, p.side, p.line, p.last_line),
        text=p.text,
        seen=p.seen,
        operator=operator_behind(caller),
    )
    return _comment_row(drafted)


class OfComment(Params):
    comment_id: Id


class CommentRemoved(TypedDict):
    comment_id: str
    removed: bool


@operation(
    OfComment,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    Code.INVALID_TRANSITION,
    requires=(OPERATORS_ONLY,),
    tool=False,
    destructive=True,
)
def pool_remove_comment(p: OfComment, caller: Caller) -> CommentRemoved:
    """Delete a comment that is not sent yet."""
    reviews.remove(comment_id=p.comment_id)
    return {"comment_id": p.comment_id, "removed": True}


class CommentsSent(WorktreeRow):
    sent: Annotated[int, Field(description="Comments.")]
    run_id: str
    to: Annotated[str, Field(description="The agent that got them.")]


@operation(OfWorktree, *DECIDING, ControlCode.POOL_FULL, requires=(OPERATORS_ONLY, IN_POOL), tool=False)
def pool_send_comments(p: OfWorktree, caller: Caller) -> CommentsSent:
    """Ask for changes: send all drafted comments as one message to the agent that holds the work. A handoff that it
    submitted is returned to it."""
    row, turn, count = reviews.send(agent_id=p.agent_id, worktree_id=p.worktree_id, operator=operator_behind(caller))
    return {**worktree_row(row), "sent": count, "run_id": turn.pk, "to": turn.agent.agent_id}


class Approve(OfWorktree):
    seen: Annotated[Id, Field(description="The `seen` of what you read: refused if it changed.")]
    unseen: Annotated[
        list[str],
        Field(description="The `unshown` files, which you read elsewhere; or directories of them, ending in a slash."),
    ] = []


class Approved(MergeRow):
    accepted: Annotated[str | None, Field(description="The handoff that this accepted.")]


@operation(
    Approve,
    *DECIDING,
    requires=(OPERATORS_ONLY, IN_POOL),
    tool=False,
    slow=True,
    takes_minutes=True,
    own_transaction=True,
)
def pool_approve_work(p: Approve, caller: Caller) -> Approved:
    """Approve work as you saw it: it goes into the merge queue, and its handoff is accepted if that is submitted."""
    entry, handoff = reviews.approve(
        agent_id=p.agent_id,
        worktree_id=p.worktree_id,
        seen=p.seen,
        unseen=p.unseen,
        operator=operator_behind(caller),
    )
    return {**merge_row(entry), "accepted": handoff.pk if handoff else None}


class Abandon(OfWorktree):
    lost_too: Annotated[bool, Field(description="Even what no ref can keep: see the refusal.")] = False


class Abandoned(WorktreeRow):
    opened: Annotated[str | None, Field(description="The handoff that is open again.")]


@operation(
    Abandon,
    *DECIDING,
    requires=(OPERATORS_ONLY, IN_POOL),
    tool=False,
    slow=True,
    takes_minutes=True,
    own_transaction=True,
    destructive=True,
)
def pool_abandon_work(p: Abandon, caller: Caller) -> Abandoned:
    """Abandon an agent's work: the agent ends, its worktree is removed, and a ref keeps the changes. A handoff that it
    held is open again."""
    row, handoff = reviews.abandon(
        agent_id=p.agent_id, worktree_id=p.worktree_id, lost_too=p.lost_too, operator=operator_behind(caller)
    )
    return {**worktree_row(row), "opened": handoff.pk if handoff else None}


class AnswerComment(OfComment):
    outcome: Literal["done", "declined", "asked"]
    words: Annotated[str, Field(description="What you did, why not, or what you ask.")] = ""


@operation(AnswerComment, *COMMON, requires=(IN_POOL,), idempotent=True)
def pool_review_answer(p: AnswerComment, caller: Caller) -> CommentRow:
    """Say what became of a review's comment that was sent to you."""
    return _comment_row(
        reviews.answer_comment(actor_of(caller), comment_id=p.comment_id, outcome=p.outcome, words=p.words)
    )


def _work_of(handoff: Handoff | None) -> WorkOf | None:
    if handoff is None:
        return None
    title, status = handoff.title, handoff.status
    return {"handoff_id": handoff.pk, "title": title, "status": status, "result": handoff.result}


def _comment_row(comment: ReviewComment) -> CommentRow:
    return {
        "comment_id": comment.pk,
        "path": comment.path or None,
        "side": comment.side,
        "line": comment.first_line,
        "last_line": comment.last_line,
        "quote": comment.quote,
        "text": comment.text,
        "author": comment.author,
        "written_at": iso(comment.written_at),
        "sent_at": iso(comment.sent_at),
        "run_id": comment.run_id,
        "outcome": comment.outcome,
        "words": comment.words,
        "answered_at": iso(comment.answered_at),
    }
