"""Operations on comments about a plan: people write and send them, agents say what became of each."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.comments import LONGEST_TEXT, LeftOff, latest
from coordination.parameters import SessionId, SessionSecret, in_session
from coordination.services import workspaces
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.planning import documents
from nexus.planning.models import PlanComment
from nexus.planning.operations import CHANGING, READING, OfProject
from nexus.planning.schemas import Reference
from nexus.planning.services import comments
from nexus.planning.toolset import operation


class PlanCommentRow(TypedDict):
    comment_id: str
    plan_id: int
    issue_id: Annotated[int | None, Field(description="null: all of the plan.")]
    quote: Annotated[str, Field(description="The issue, as it was when the comment was written.")]
    text: str
    author: str
    written_at: Time
    sent_at: Annotated[Time | None, Field(description="null: a draft.")]
    to: Annotated[str | None, Field(description="The agent that got it.")]
    outcome: Annotated[str | None, Field(description="done, declined or asked, as the agent says.")]
    words: str
    answered_at: Time | None


def comment_row(comment: PlanComment) -> PlanCommentRow:
    return {
        "comment_id": comment.pk,
        "plan_id": comment.plan_number,
        "issue_id": comment.issue_number,
        "quote": comment.quote,
        "text": comment.text,
        "author": comment.author,
        "written_at": iso(comment.written_at),
        "sent_at": iso(comment.sent_at),
        "to": comment.recipient,
        "outcome": comment.outcome,
        "words": comment.words,
        "answered_at": iso(comment.answered_at),
    }


class PlanComments(TypedDict):
    comments: list[PlanCommentRow]
    comments_left_off: NotRequired[LeftOff]


@operation(OfProject, *READING, slow=True, read_only=True)
def plan_comments(p: OfProject, caller: Caller) -> PlanComments:
    """People's newest comments on the active plan, and what became of each. Drafts are shown to operators alone."""
    plan = documents.active_plan(workspaces.locate(p.project_root).workspace_id)
    if plan is None:
        return {"comments": []}
    found, older = latest(comments.on_plan(plan) if caller.operator else comments.on_plan(plan).exclude(sent_at=None))
    data: PlanComments = {"comments": [comment_row(each) for each in found]}
    return {**data, "comments_left_off": older} if older else data


Words = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)]
OF_DRAFT = (Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.INVALID_TRANSITION)


class PlanCommentAdd(OfProject):
    text: Words
    issue_id: Annotated[Reference | None, Field(description="The issue; none: all of the plan.")] = None


@operation(
    PlanCommentAdd, *CHANGING, Code.NOT_FOUND, Code.INVALID_TRANSITION,
    requires=(OPERATORS_ONLY,), tool=False, slow=True, own_transaction=True,
)  # fmt: skip
def plan_comment_add(p: PlanCommentAdd, caller: Caller) -> PlanCommentRow:
    """Draft a comment on an issue of the active plan, or on all of it."""
    drafted = comments.add(
        project_root=p.project_root, issue_id=p.issue_id, text=p.text, operator=operator_behind(caller)
    )
    return comment_row(drafted)


class OfPlanComment(Params):
    comment_id: Id


class PlanCommentRemoved(TypedDict):
    comment_id: str
    removed: bool


@operation(OfPlanComment, *OF_DRAFT, requires=(OPERATORS_ONLY,), tool=False, destructive=True)
def plan_comment_remove(p: OfPlanComment, caller: Caller) -> PlanCommentRemoved:
    """Delete a comment on a plan that is not sent yet."""
    comments.remove(comment_id=p.comment_id)
    return {"comment_id": p.comment_id, "removed": True}


class PlanCommentsSend(OfProject):
    agent_id: Annotated[Id | None, Field(description="Who gets them; default: the agent that holds the plan.")] = None


class PlanCommentsSent(TypedDict):
    sent: Annotated[int, Field(description="Comments.")]
    to: Annotated[str, Field(description="The agent that got them.")]


@operation(
    PlanCommentsSend, *CHANGING, Code.NOT_FOUND, Code.INVALID_TRANSITION,
    requires=(OPERATORS_ONLY,), tool=False, slow=True, own_transaction=True,
)  # fmt: skip
def plan_comments_send(p: PlanCommentsSend, caller: Caller) -> PlanCommentsSent:
    """Send all drafted comments on the active plan as one message to the agent that holds it."""
    to, count = comments.send(project_root=p.project_root, agent_id=p.agent_id, operator=operator_behind(caller))
    return {"sent": count, "to": to}


class PlanCommentAnswer(OfPlanComment):
    agent_id: Annotated[Id, Field(description="You, who got it.")]
    outcome: Literal["done", "declined", "asked"]
    words: Annotated[str, Field(description="What you did, why not, or what you ask.")] = ""
    session_id: SessionId = None
    session_secret: SessionSecret = None


@operation(
    PlanCommentAnswer,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    Code.NOT_OWNER,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    idempotent=True,
)
def plan_comment_answer(p: PlanCommentAnswer, caller: Caller) -> PlanCommentRow:
    """Say what became of a comment on a plan that was sent to you."""
    found = comments.answer_comment(agent_id=p.agent_id, comment_id=p.comment_id, outcome=p.outcome, words=p.words)
    return comment_row(found)
