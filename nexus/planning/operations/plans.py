"""Operations on plans and their issues."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.services import workspaces
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.planning import documents, mirror
from nexus.planning.operations.common import CHANGING, READING, OfProject, actor
from nexus.planning.schemas import MOST_ISSUES, IssueEntry, Reference
from nexus.planning.services import plans
from nexus.planning.toolset import operation

Text = Annotated[str, Field(min_length=1)]


class PlanStart(OfProject):
    topic: Text
    issues: Annotated[list[Text], Field(max_length=MOST_ISSUES, description="To be decided, in order.")]
    research_summary: Annotated[str, Field(description="What was found out before.")]


class StartedPlan(TypedDict):
    created: bool
    plan_id: int
    topic: str
    issueCount: int
    previousArchived: bool


@operation(PlanStart, *CHANGING, slow=True, own_transaction=True)
def plan_start(p: PlanStart, caller: Caller) -> StartedPlan:
    """Begin a plan; one that is active goes to the history."""
    plan, archived = plans.start(
        project_root=p.project_root,
        topic=p.topic,
        issues=p.issues,
        research_summary=p.research_summary,
        by=actor(caller, "plan_start"),
    )
    return {
        "created": True,
        "plan_id": plan.number,
        "topic": plan.topic,
        "issueCount": len(p.issues),
        "previousArchived": archived,
    }


class PlanSummary(TypedDict):
    total: int
    pending: int
    decided: int


class PlanState(TypedDict):
    active: bool
    plan_id: NotRequired[int]
    topic: NotRequired[str]
    issues: NotRequired[list[IssueEntry]]
    research_summary: NotRequired[str]
    summary: NotRequired[PlanSummary]


@operation(OfProject, *READING, slow=True, read_only=True)
def plan_status(p: OfProject, caller: Caller) -> PlanState:
    """The active plan, its issues and what was decided."""
    project = workspaces.locate(p.project_root)
    mirror.take_in(project)
    plan = documents.plan_document(project.workspace_id)
    if plan is None:
        return {"active": False}
    decided = sum(issue["status"] == "decided" for issue in plan["issues"])
    state: PlanState = {"active": True, "plan_id": plan["id"], "topic": plan["topic"], "issues": plan["issues"]}
    if "research_summary" in plan:
        state["research_summary"] = plan["research_summary"]
    state["summary"] = {"total": len(plan["issues"]), "pending": len(plan["issues"]) - decided, "decided": decided}
    return state


class PlanUpdate(OfProject):
    action: Annotated[str, Field(description="add, remove, edit or reopen.")]
    issue_id: Reference | None = None
    title: str | None = None


class UpdatedPlan(TypedDict):
    added: NotRequired[bool]
    removed: NotRequired[bool]
    edited: NotRequired[bool]
    reopened: NotRequired[bool]
    issue: IssueEntry


DONE = {"add": "added", "remove": "removed", "edit": "edited", "reopen": "reopened"}


@operation(PlanUpdate, *CHANGING, Code.NOT_FOUND, slow=True, own_transaction=True)
def plan_update(p: PlanUpdate, caller: Caller) -> UpdatedPlan:
    """Add (title), remove, edit (title) or reopen an issue; reopening drops its decision."""
    issue = plans.update(
        project_root=p.project_root,
        action=p.action,
        issue_id=p.issue_id,
        title=p.title,
        by=actor(caller, "plan_update"),
    )
    done: Any = {DONE[p.action]: True, "issue": documents.issue_entry(issue)}
    updated: UpdatedPlan = done
    return updated


class PlanDecide(OfProject):
    issue_id: Reference
    summary: Annotated[str, Field(description="The decision and its reasons.")]
    how_agents: Annotated[list[str] | None, Field(max_length=100, description="Who was asked.")] = None
    how_summary: Annotated[dict[str, str] | None, Field(max_length=100, description="By agent, what it said.")] = None
    how_agent_ids: Annotated[dict[str, str] | None, Field(max_length=100, description="By agent, its instance.")] = None


class OpenIssue(TypedDict):
    id: int
    title: str
    status: str


class DecidedIssue(TypedDict):
    decided: bool
    issue: str
    allComplete: bool
    message: NotRequired[str]
    remaining: NotRequired[list[OpenIssue]]


@operation(PlanDecide, *CHANGING, Code.NOT_FOUND, slow=True, own_transaction=True)
def plan_decide(p: PlanDecide, caller: Caller) -> DecidedIssue:
    """Decide an issue, or decide it anew."""
    issue, left = plans.decide(
        project_root=p.project_root,
        issue_id=p.issue_id,
        summary=p.summary,
        how_agents=p.how_agents,
        how_summary=p.how_summary,
        how_agent_ids=p.how_agent_ids,
        by=actor(caller, "plan_decide"),
    )
    decided: DecidedIssue = {"decided": True, "issue": issue.title, "allComplete": not left}
    if left:
        decided["remaining"] = [{"id": each.number, "title": each.title, "status": each.status} for each in left]
    else:
        decided["message"] = "Every issue is decided. Make tasks of the decisions with task_add."
    return decided
