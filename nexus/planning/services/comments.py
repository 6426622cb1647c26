"""Comments of people on a plan: on one of its issues, or on all of it. All drafts are sent as one message to the agent
that holds the plan."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import QuerySet

from coordination import comments as rules
from coordination.comments import check_draft, check_room, check_text, check_words, count_in_words, quoted
from coordination.ids import new_id
from coordination.selectors import agent_exists
from coordination.services import agents, workspaces
from inbox import services as mail
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, not_found
from nexus.core.size_limits import within_limit
from nexus.planning import mirror
from nexus.planning.models import Issue, Plan, PlanComment
from nexus.planning.notices import emit_event
from nexus.planning.services import plans

QUOTED = 2_000  # characters of an issue's title and decision
LARGEST_MESSAGE = 1_000_000  # bytes of all comments of a round


def on_plan(plan: Plan) -> QuerySet[PlanComment]:
    """Return the comments on a plan, oldest first."""
    return PlanComment.objects.filter(workspace=plan.workspace_id, plan_number=plan.number).order_by("pk")


def holder(plan: Plan) -> str | None:
    """Return the registered agent that holds a plan: that started it, else that decided something last."""
    decided = Issue.objects.filter(plan=plan, decided_by__isnull=False).order_by("-decided_at")
    names = [plan.started_by, *decided.values_list("decided_by", flat=True)[:1]]
    return next((name for name in names if name not in (None, OPERATOR_AGENT) and agent_exists(name)), None)


def add(*, project_root: str, issue_id: int | None, text: str, operator: str) -> PlanComment:
    """Draft a comment on an issue of the active plan, or on all of it, with the issue as it is now.

    Raises VALIDATION_ERROR for a blank text, NOT_FOUND with the contract's words, INVALID_TRANSITION and
    CONTENT_TOO_LARGE for more than one message holds.
    """
    check_text(text)
    project = workspaces.locate(project_root)
    mirror.import_changes(project)
    with write():
        plan = plans.active(project.workspace_id)
        drafted = PlanComment(
            comment_id=new_id("comment"),
            workspace_id=project.workspace_id,
            plan_number=plan.number,
            issue_number=issue_id,
            quote="" if issue_id is None else _quote(plans.issue_of(plan, issue_id)),
            text=text,
            author=operator,
            written_at=now(),
        )
        drafts = _drafts(plan)
        check_room(drafts)
        _message(plan, [*drafts, drafted])
        drafted.save(force_insert=True)
    return drafted


def remove(*, comment_id: str) -> None:
    """Delete a draft. Raises NOT_FOUND, and INVALID_TRANSITION once it is sent."""
    with write():
        _draft(comment_id).delete()


def send(*, project_root: str, agent_id: str | None, operator: str) -> tuple[str, int]:
    """Send all drafts on the active plan as one message, to an agent or to the one that holds the plan; return which
    agent got it, and how many comments.

    Raises NOT_FOUND for the agent and without a plan; INVALID_TRANSITION without drafts, so that of two calls one
    sends, and where nobody holds the plan.
    """
    project = workspaces.locate(project_root)
    mirror.import_changes(project)
    with write():
        plan, moment = plans.active(project.workspace_id), now()
        drafts = _drafts(plan)
        if not drafts:
            raise NexusError(Code.INVALID_TRANSITION, "No comment on this plan waits to be sent.")
        to = agent_id or holder(plan)
        if to is None:
            raise NexusError(Code.INVALID_TRANSITION, "No registered agent holds this plan; name one.")
        reached = mail.notify(
            workspace_id=project.workspace_id,
            from_agent_id=OPERATOR_AGENT,
            recipient=to,
            subject=f"{count_in_words(drafts)} on your plan: {plan.topic[:200]}",
            body=_message(plan, drafts),
            moment=moment,
        )
        if not reached:
            raise not_found("agent", to)
        PlanComment.objects.filter(pk__in=[each.pk for each in drafts]).update(sent_at=moment, recipient=to)
        emit_event(
            project.workspace_id, "plan.commented", None, moment,
            topic=plan.topic[:200], comments=len(drafts), to=to, operator=operator,
        )  # fmt: skip
    return to, len(drafts)


def answer_comment(*, agent_id: str, comment_id: str, outcome: str, words: str) -> PlanComment:
    """Record what became of a comment, as the agent that it was sent to says; it may say so again.

    Raises VALIDATION_ERROR, NOT_FOUND, and NOT_OWNER for anybody else.
    """
    check_words(words)
    with write():
        found = PlanComment.objects.filter(pk=comment_id).exclude(sent_at=None).first()
        if found is None:
            raise not_found("comment", comment_id[:200])
        if found.recipient != agent_id:
            raise NexusError(Code.NOT_OWNER, "The agent that a comment was sent to says what became of it.")
        rules.store_answer(found, outcome, words)
        moment = now()
        emit_event(found.workspace_id, "plan.answered", agent_id, moment, comment_id=found.pk, outcome=outcome)
        agents.touch(agent_id, moment)
    return found


def _quote(issue: Issue) -> str:
    parts = [issue.title, f"Decided: {issue.decision}" if issue.decision else "To be decided."]
    return "\n".join(parts)[:QUOTED]


def _drafts(plan: Plan) -> list[PlanComment]:
    return list(on_plan(plan).filter(sent_at=None))


def _draft(comment_id: str) -> PlanComment:
    draft = PlanComment.objects.select_for_update().filter(pk=comment_id).first()
    if draft is None:
        raise not_found("comment", comment_id[:200])
    check_draft(draft)
    return draft


def _message(plan: Plan, drafts: Sequence[PlanComment]) -> str:
    """Return the message that brings an agent all comments of a round. Raises CONTENT_TOO_LARGE."""
    parts = [
        f"A person commented on plan {plan.number}, {plan.topic[:200]!r}: {count_in_words(drafts)}. Lines that "
        "begin with | are quoted from the plan."
    ]
    for number, each in enumerate(drafts, 1):
        quote = f"\n{quoted(each.quote)}" if each.quote else ""
        parts.append(f"{number}. {each.pk}, about {each.where}{quote}\n{each.author}: {each.text}")
    parts.append(
        "Change the plan accordingly: plan_update, plan_decide. Then say what became of each comment: "
        "plan_comment_answer(comment_id, outcome, words), whose outcome is done, declined or asked."
    )
    text = "\n\n".join(parts)
    within_limit(text, "text", LARGEST_MESSAGE)
    return text
