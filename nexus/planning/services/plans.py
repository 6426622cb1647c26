"""Writes of plans. Each is one transaction that imports foreign changes and leaves the files in step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db.models import Max

from nexus.core.clock import iso_milliseconds
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.size_limits import json_within_limit, within_limit
from nexus.planning import documents
from nexus.planning.mirror import Change
from nexus.planning.models import Cycle, Issue, IssueStatus, Plan, PlanComment
from nexus.planning.notices import emit_event
from nexus.planning.schemas import MOST_ISSUES, PLAN, analyses
from nexus.planning.services.changes import Actor, changing
from nexus.planning.services.cycles import archive_plan


def start(
    *, project_root: str, topic: str, issues: Sequence[str], research_summary: str, by: Actor
) -> tuple[Plan, bool]:
    """Begin a plan; return it, and whether an active one was archived.

    Raises CONTENT_TOO_LARGE, and as `changing` does: WORKSPACE_UNRESOLVED, STATE_FILE_INVALID, STATE_UNAVAILABLE,
    STATE_BUSY.
    """
    json_within_limit([topic, research_summary, *issues], "issues")
    with changing(project_root, by) as change:
        change.adds[PLAN.path] += documents.length(
            topic, research_summary, [{"id": 0, "title": title, "status": "pending"} for title in issues]
        )
        former = documents.plan_document(change.project.workspace_id)
        if former is not None:
            archive_plan(change, former, by)
            Plan.objects.filter(pk=change.project.workspace_id).delete()
        # A plan whose file was removed is in no cycle; its comments must not become those of another.
        numbered = Cycle.objects.in_history(), PlanComment.objects.all()
        here = [rows.filter(workspace_id=change.project.workspace_id) for rows in numbered]
        highest = max(rows.aggregate(highest=Max("plan_number"))["highest"] or 0 for rows in here)
        plan = Plan.objects.create(
            workspace_id=change.project.workspace_id,
            number=highest + 1,
            topic=topic,
            research_summary=research_summary,
            created_at=iso_milliseconds(change.moment),
            next_issue=len(issues) + 1,
            started_by=by.name,
        )
        Issue.objects.bulk_create(
            Issue(plan=plan, number=number, position=number, title=title)
            for number, title in enumerate(issues, start=1)
        )
        emit_event(plan.workspace_id, "plan.started", by.name, change.moment, plan_id=plan.number, topic=topic[:200])
    return plan, former is not None


def update(*, project_root: str, action: str, issue_id: int | None, title: str | None, by: Actor) -> Issue:
    """Add, remove, edit or reopen an issue of the active plan; return the issue, as it is or was.

    Raises VALIDATION_ERROR and NOT_FOUND with the contract's words, CONTENT_TOO_LARGE, and as `changing` does.
    """
    within_limit(title, "title")
    with changing(project_root, by) as change:
        change.adds[PLAN.path] += documents.length(title) if action in ("add", "edit") else 0
        plan = active(change.project.workspace_id)
        if action == "add":
            issue = _add_issue(plan, title)
        elif action in ("remove", "reopen", "edit"):
            issue = _changed_issue(change, plan, action, issue_id, title)
        else:
            raise invalid("Unknown action", field="action")
        what = "plan.reopened" if action == "reopen" else "plan.updated"
        emit_event(
            plan.workspace_id,
            what,
            by.name,
            change.moment,
            action=action,
            issue_id=issue.number,
            title=issue.title[:200],
        )
    return issue


def decide(
    *,
    project_root: str,
    issue_id: int,
    summary: str,
    how_agents: list[str] | None,
    how_summary: Mapping[str, str] | None,
    how_agent_ids: Mapping[str, str] | None,
    by: Actor,
    again: bool = True,
) -> tuple[Issue, list[Issue]]:
    """Decide an issue of the active plan, also `again`; return the issue, and the undecided ones.

    Raises NOT_FOUND with the contract's words, INVALID_TRANSITION for one that is decided and must not be again,
    CONTENT_TOO_LARGE, and as `changing` does.
    """
    json_within_limit([summary, how_agents, how_summary, how_agent_ids], "summary")
    with changing(project_root, by) as change:
        change.adds[PLAN.path] += documents.length(summary, how_agents, how_summary, how_agent_ids)
        plan = active(change.project.workspace_id)
        issue = issue_of(plan, issue_id)
        if issue.status == IssueStatus.DECIDED and not again:
            raise NexusError(Code.INVALID_TRANSITION, "This issue is decided; reopen it first.", {"id": issue.number})
        issue.status, issue.decision = IssueStatus.DECIDED, summary
        for name, given in (("how_agents", how_agents), ("how_summary", how_summary), ("how_agent_ids", how_agent_ids)):
            if given is not None:
                setattr(issue, name, given)
        issue.decided_by, issue.decided_at = by.signature, change.moment
        issue.save()
        left = list(plan.issues.filter(status=IssueStatus.PENDING).order_by("position", "number"))
        emit_event(
            plan.workspace_id,
            "plan.decided",
            by.name,
            change.moment,
            issue_id=issue.number,
            title=issue.title[:200],
            decision=summary[:500],
            all_decided=not left,
        )
    return issue, left


def add_analysis(
    *, project_root: str, issue_id: int, role: str, summary: str, agent_id: str | None, by: Actor
) -> tuple[str, int]:
    """Add what a role found to an issue of the active plan; return when, and how many analyses the issue has now.

    Raises NOT_FOUND with the contract's words, CONTENT_TOO_LARGE, and as `changing` does.
    """
    json_within_limit([role, summary, agent_id], "summary")
    with changing(project_root, by) as change:
        change.adds[PLAN.path] += documents.length(role, summary, agent_id)
        issue = issue_of(active(change.project.workspace_id), issue_id)
        entry = {"role": role, "summary": summary, "recorded_at": iso_milliseconds(change.moment)}
        if agent_id is not None:
            entry["agent_id"] = agent_id
        entries = [*analyses(issue.extra), entry]
        issue.extra = {**(issue.extra or {}), "analysis": entries}
        issue.save(update_fields=["extra"])
        emit_event(
            issue.plan_id,
            "plan.analysed",
            by.name,
            change.moment,
            issue_id=issue.number,
            title=issue.title[:200],
            role=role[:200],
        )
    return entry["recorded_at"], len(entries)


def active(workspace_id: str) -> Plan:
    """Return the active plan. Raises NOT_FOUND with the contract's words."""
    plan = documents.active_plan(workspace_id)
    if plan is None:
        raise NexusError(Code.NOT_FOUND, "No active plan session")
    return plan


def issue_of(plan: Plan, issue_id: int) -> Issue:
    """Return an issue of a plan. Raises NOT_FOUND with the contract's words."""
    issue = plan.issues.filter(number=issue_id).first() if issue_id > 0 else None
    if issue is None:
        raise NexusError(Code.NOT_FOUND, f"Issue {issue_id} not found", {"issue_id": issue_id})
    return issue


def _add_issue(plan: Plan, title: str | None) -> Issue:
    if not title:
        raise invalid("title is required for add", field="title")
    last = plan.issues.aggregate(last=Max("position"))["last"] or 0
    if plan.issues.count() >= MOST_ISSUES:
        raise invalid(f"A plan has {MOST_ISSUES} issues at most; start another one.", field="title")
    issue = Issue.objects.create(plan=plan, number=plan.next_issue, position=last + 1, title=title)
    plan.next_issue += 1
    plan.save(update_fields=["next_issue"])
    return issue


def _changed_issue(change: Change, plan: Plan, action: str, issue_id: int | None, title: str | None) -> Issue:
    if action == "edit" and (issue_id is None or not title):
        raise invalid("issue_id and title are required for edit", field="title" if issue_id is not None else "issue_id")
    if issue_id is None:
        raise invalid(f"issue_id is required for {action}", field="issue_id")
    issue = issue_of(plan, issue_id)
    if action == "remove":
        plan.issues.filter(number=issue.number).delete()
    elif action == "edit":
        assert title is not None
        change.adds[PLAN.path] -= documents.length(issue.title)
        issue.title = title
        issue.save(update_fields=["title"])
    else:
        issue.status = IssueStatus.PENDING
        issue.decision = issue.how_agents = issue.how_summary = issue.how_agent_ids = None
        issue.decided_by = issue.decided_at = None
        issue.save()
    return issue
