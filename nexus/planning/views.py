"""The pages of plans: a project's plan, closed cycles, tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse

from coordination.comments import latest
from coordination.forms import WorkspaceFilters
from coordination.models import Agent, Workspace
from nexus.core.operations.parameters import whole_number
from nexus.core.operations.replies import Body
from nexus.planning import monitoring, schemas
from nexus.planning.forms import (
    CommentForm,
    DecideForm,
)
from nexus.planning.models import Board, Cycle, Issue, Plan, Task, TaskStatus
from nexus.planning.monitoring import READY, TaskRow
from nexus.planning.services import comments
from nexus.planning.toolset import PLANNING
from nexus.planning.trouble import trouble
from nexus.web.forms import OperationForm
from nexus.web.page import form_only, operate, posted, render
from nexus.web.templatetags.nexus import plain


def operate_on(
    workspace: Workspace,
    request: HttpRequest,
    name: str,
    done: str,
    form: OperationForm | None = None,
    /,
    **arguments: Any,
) -> Body:
    """Call `nexus.web.page.operate` for an operation of planning, and show its warnings."""
    about = {"project_root": workspace.root_realpath, **arguments}
    envelope = operate(PLANNING, request, name, done, form, **about)
    for warning in envelope["data"].get("warnings", []) if envelope["ok"] else []:
        messages.warning(request, warning)
    return envelope


def to_plan(workspace_id: str, fragment: str = "") -> HttpResponse:
    """Redirect to the plan of a workspace."""
    return redirect(f"{reverse('admin:plan')}?workspace={workspace_id}{fragment}")


LISTED, ISSUES, CARDS = 100, 200, 40
COLUMNS = {
    TaskStatus.PENDING: "Waiting",
    READY: "Ready",
    TaskStatus.IN_PROGRESS: "In progress",
    TaskStatus.COMPLETED: "Completed",
}


def plan(request: HttpRequest) -> HttpResponse:
    """Show the plan of `?workspace=`; without one, list the workspaces with plans."""
    filters = WorkspaceFilters(request.GET)
    if filters.chosen_workspace is None:
        return render(
            request,
            "planning/plans.html",
            "Plans",
            filters=filters,
            rows=monitoring.list_projects(LISTED),
            any_workspace=Workspace.objects.exists(),
            limit=LISTED,
        )
    return _plan(request, filters.chosen_workspace, filters)


def _plan(
    request: HttpRequest,
    workspace: Workspace,
    filters: WorkspaceFilters | None = None,
    comment_form: CommentForm | None = None,
) -> HttpResponse:
    problem = trouble(request, workspace)  # first, because it brings the rows up to date
    row = Plan.objects.filter(pk=workspace.pk).first()
    issues = list(row.issues.order_by("position", "number")) if row else []
    board = Board.objects.filter(pk=workspace.pk).first()
    work = monitoring.work(workspace.pk)
    return render(
        request,
        "planning/plan.html",
        f"Plan of {plain(workspace)}",
        filters=filters or WorkspaceFilters(QueryDict(f"workspace={workspace.pk}")),
        workspace=workspace,
        problem=problem,
        plan=row,
        started=monitoring.moment_of(row.created_at) if row else None,
        issues=[(issue, _answers(issue)) for issue in issues],
        shown=ISSUES,
        decided=sum(issue.status == "decided" for issue in issues),
        board=board,
        work=work,
        columns=_columns(work),
        cards=CARDS,
        cycles=Cycle.objects.in_history().filter(workspace=workspace).count(),
        **(_commented(row, comment_form) if row else {}),
    )


def _answers(issue: Issue) -> list[tuple[str, str]]:
    """Return who was asked about an issue, with each answer, and the roles that analysed it."""
    said = issue.how_summary or {}
    named = [*(issue.how_agents or []), *said, *(issue.how_agent_ids or {})]
    asked = [(name, said.get(name, "")) for name in dict.fromkeys(named)]
    entries = [entry for entry in schemas.analyses(issue.extra) if isinstance(entry, dict)]
    return [*asked, *((str(entry.get("role", "")), str(entry.get("summary", ""))) for entry in entries)]


def _columns(work: Sequence[TaskRow]) -> list[dict[str, Any]]:
    """Return the board: for each state the number of tasks and the first of them; for completed tasks, the last."""
    columns = []
    for state, label in COLUMNS.items():
        cards = [each for each in work if each.state == state]
        shown = cards[::-1] if state == TaskStatus.COMPLETED else cards
        columns.append({"state": state, "label": label, "count": len(cards), "cards": shown[:CARDS]})
    return columns


def plan_version(workspace_id: str) -> str:
    """Return a text that identifies the plan and the number of cycles of a workspace, to recognise an outdated form."""
    number = Plan.objects.filter(pk=workspace_id).values_list("number", flat=True).first()
    return f"{number or 0}.{Cycle.objects.in_history().filter(workspace=workspace_id).count()}"


def outdated(request: HttpRequest, workspace_id: str, shown: str) -> bool:
    """Return whether a form was made for another plan, or was sent before; then show a message."""
    if shown in ("", plan_version(workspace_id)):
        return False
    messages.warning(
        request, "The plan has changed since this form was opened. Nothing was done; look, and do it again."
    )
    return True


def close(request: HttpRequest, workspace_id: str) -> HttpResponse:
    """Show what is archived; POST closes the cycle."""
    workspace = get_object_or_404(Workspace, pk=workspace_id)
    if request.method == "POST":
        if not outdated(request, workspace_id, request.POST.get("seen", "")):
            operate_on(workspace, request, "task_close", "The cycle is closed.")
        return to_plan(workspace_id)
    tasks = Task.objects.current(workspace_id)
    return render(
        request,
        "planning/plan_close.html",
        "Close the cycle",
        workspace=workspace,
        plan=Plan.objects.filter(pk=workspace_id).first(),
        undecided=Issue.objects.filter(plan=workspace_id, status="pending").count(),
        tasks=tasks.count(),
        open=tasks.exclude(status=TaskStatus.COMPLETED).count(),
        seen=plan_version(workspace_id),
    )


def issue(request: HttpRequest, issue_id: int) -> HttpResponse:
    """Show an issue with its decision and who was asked; POST decides it, also again."""
    row = _issue(issue_id)
    form = DecideForm(posted(request), initial={"summary": row.decision})
    if form.is_valid():
        about = {"issue_id": row.number, **form.cleaned_data}
        envelope = operate_on(row.plan.workspace, request, "plan_decide", "The issue is decided.", form, **about)
        if envelope["ok"]:
            return to_plan(row.plan_id, "#issues")
    return _issue_page(request, row, form=form)


@form_only(to_plan)
def comment(request: HttpRequest, workspace_id: str) -> HttpResponse:
    """Draft a comment on an issue of the plan, or on all of it."""
    workspace = get_object_or_404(Workspace, pk=workspace_id)
    form = CommentForm(request.POST, auto_id="comment-%s")
    row = _issue(whole_number(request.POST["issue"]) or 0) if "issue" in request.POST else None
    if form.is_valid():
        about = {**form.arguments(), "issue_id": row.number if row else None}
        if operate_on(workspace, request, "plan_comment_add", "The comment waits to be sent.", form, **about)["ok"]:
            return to_plan(workspace_id, "#comments") if row is None else redirect("admin:plan_issue", row.pk)
    return _plan(request, workspace, comment_form=form) if row is None else _issue_page(request, row, comment_form=form)


def _commented(plan: Plan, form: CommentForm | None, issue: Issue | None = None) -> dict[str, Any]:
    """Return what `planning/plan_comments.html` shows: of an issue, or of all of the plan."""
    found = comments.on_plan(plan)
    shown, older = latest(found if issue is None else found.filter(issue_number=issue.number))
    return {
        "comments": shown,
        "comments_left_off": older,
        "drafts": found.filter(sent_at=None).count(),
        "holder": comments.holder(plan),
        "comment_form": form or CommentForm(auto_id="comment-%s"),
    }


def _issue(issue_id: int) -> Issue:
    return get_object_or_404(Issue.objects.select_related("plan__workspace"), pk=issue_id)


def _issue_page(
    request: HttpRequest, row: Issue, comment_form: CommentForm | None = None, form: DecideForm | None = None
) -> HttpResponse:
    known = {agent_id for agent_id in (row.decided_by,) if agent_id and Agent.objects.filter(pk=agent_id).exists()}
    instances = row.how_agent_ids or {}
    return render(
        request,
        "planning/plan_issue.html",
        f"Issue {row.number}",
        about=row.title,
        issue=row,
        known=known,
        asked=[(name, said, instances.get(name, "")) for name, said in _answers(row)],
        tasks=monitoring.for_issue(row),
        plan=row.plan,
        **_commented(row.plan, comment_form, row),
        form=form or DecideForm(initial={"summary": row.decision}),
    )
