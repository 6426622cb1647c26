"""Plan: what a workspace decides and does, as issues, a board and a drawing; and what an operator does with issues."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby, pairwise
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect

from coordination.models import Agent, Workspace
from nexus.dashboard.forms.filters import PlaceFilters
from nexus.dashboard.forms.planning import DecideForm, IssueChangeForm, IssueForm, StartForm
from nexus.dashboard.page import form_only, posted, render
from nexus.dashboard.pages import drawing
from nexus.dashboard.pages.project import operate_on, to_plan, trouble
from nexus.dashboard.templatetags.nexus import plain
from nexus.planning import monitoring, rules
from nexus.planning.models import Board, Cycle, Issue, Plan, Task, TaskStatus
from nexus.planning.monitoring import READY, Work

LISTED, ISSUES, CARDS, DRAWN, LINES = 100, 100, 40, 150, 500
COLUMNS = {
    TaskStatus.PENDING: "Waiting",
    READY: "Ready",
    TaskStatus.IN_PROGRESS: "In progress",
    TaskStatus.COMPLETED: "Completed",
}
SAID = {"edit": "The issue is renamed.", "reopen": "The issue is open again.", "remove": "The issue is removed."}


def plan(request: HttpRequest) -> HttpResponse:
    """The plan of `?workspace=`; without one, the workspaces where something is planned."""
    filters = PlaceFilters(request.GET)
    if filters.place is None:
        return render(request, "plans", "Plans", filters=filters, rows=monitoring.listed(LISTED), limit=LISTED)
    return _plan(request, filters.place, filters)


def _plan(
    request: HttpRequest, workspace: Workspace, filters: PlaceFilters | None = None, form: IssueForm | None = None
) -> HttpResponse:
    problem = trouble(request, workspace)  # first: it brings the rows up to date
    row = Plan.objects.filter(pk=workspace.pk).first()
    issues = list(row.issues.order_by("position", "number")) if row else []
    board = Board.objects.filter(pk=workspace.pk).first()
    work = monitoring.work(workspace.pk)
    return render(
        request,
        "plan",
        f"Plan of {plain(workspace)}",
        filters=filters or PlaceFilters(QueryDict(f"workspace={workspace.pk}")),
        workspace=workspace,
        problem=problem,
        plan=row,
        started=monitoring.moment_of(row.created_at) if row else None,
        issues=[(issue, _asked(issue)) for issue in issues],
        told=ISSUES,
        decided=sum(issue.status == "decided" for issue in issues),
        board=board,
        work=work,
        columns=_columns(work),
        cards=CARDS,
        workers=_workers(work),
        issue_form=form or IssueForm(initial={"seen": row.next_issue - 1 if row else 0}, auto_id="issue-%s"),
        cycles=Cycle.objects.listed().filter(workspace=workspace).count(),
        **picture(work, {each.number: each.task.deps for each in work if each.task is not None}),
    )


def _asked(issue: Issue) -> list[tuple[str, str]]:
    """Who was asked about an issue, and what each said."""
    said = issue.how_summary or {}
    named = [*(issue.how_agents or []), *said, *(issue.how_agent_ids or {})]
    return [(name, said.get(name, "")) for name in dict.fromkeys(named)]


def _columns(work: Sequence[Work]) -> list[dict[str, Any]]:
    """The board: by state, how many tasks, and the first of them; of those that are completed the last."""
    columns = []
    for state, label in COLUMNS.items():
        cards = [each for each in work if each.state == state]
        shown = cards[::-1] if state == TaskStatus.COMPLETED else cards
        columns.append({"state": state, "label": label, "count": len(cards), "cards": shown[:CARDS]})
    return columns


def _workers(work: Sequence[Work]) -> list[tuple[str, list[Work]]]:
    """Who has which tasks that are not completed; first who has some in progress."""
    mine = [each for each in work if each.whose and each.state != TaskStatus.COMPLETED]
    mine.sort(key=lambda each: each.whose)
    found = [(whose, list(tasks)) for whose, tasks in groupby(mine, lambda each: each.whose)]
    return sorted(found, key=lambda pair: all(each.state != TaskStatus.IN_PROGRESS for each in pair[1]))[:LISTED]


def picture(work: Sequence[Work], deps: rules.Deps) -> dict[str, Any]:
    """The drawing of tasks, and what is beside it; of too many, those that are not completed go first."""
    chosen = sorted(work, key=lambda each: each.state == TaskStatus.COMPLETED)[:DRAWN]
    named = {each.number: each for each in chosen}
    drawn = drawing.draw({number: deps[number] for number in sorted(named)}, lines=LINES)
    nodes = [
        {
            "box": box,
            "work": named[box.number],
            "title": drawing.fitted(f"{box.number} {plain(named[box.number].title)}"),
            "line": drawing.fitted(_line(named[box.number]), drawing.UNITS * 1.15),
        }
        for box in drawn.boxes
    ]
    path = rules.critical_path(deps, [each.number for each in work if each.state == TaskStatus.COMPLETED])
    steps = set(pairwise(path))
    lines = [{"line": line, "critical": (line.start, line.end) in steps} for line in drawn.lines]
    return {
        "drawn": drawn,
        "size": (drawing.WIDTH, drawing.HEIGHT),
        "nodes": nodes,
        "lines": sorted(lines, key=lambda each: bool(each["critical"])),  # what is drawn last lies above
        "left_out": len(work) - len(chosen),
        "path": path,
        "circles": monitoring.circles(work, deps),
        "stuck": [each.number for each in work if each.stuck],
        "unknown": [each for each in work if each.unknown],
    }


def _line(work: Work) -> str:
    """What a node says beside its title."""
    return " · ".join(part for part in (work.state.replace("_", " "), plain(work.whose)) if part)


def seen(workspace_id: str) -> str:
    """Which plan and how many cycles a workspace has: what tells a form of an earlier one."""
    number = Plan.objects.filter(pk=workspace_id).values_list("number", flat=True).first()
    return f"{number or 0}.{Cycle.objects.listed().filter(workspace=workspace_id).count()}"


def outdated(request: HttpRequest, workspace_id: str, shown: str) -> bool:
    """Whether a form was made for another plan, or was sent before; then the person is told."""
    if shown in ("", seen(workspace_id)):
        return False
    messages.warning(
        request, "The plan has changed since this form was opened. Nothing was done; look, and do it again."
    )
    return True


def start(request: HttpRequest, workspace_id: str) -> HttpResponse:
    """Begin a plan; one that is active goes to the history, which the page says."""
    workspace = get_object_or_404(Workspace, pk=workspace_id)
    form = StartForm(posted(request), initial={"seen": seen(workspace_id)})
    if form.is_valid():
        if outdated(request, workspace_id, form.cleaned_data["seen"]):
            return to_plan(workspace_id)
        envelope = operate_on(workspace, request, "plan_start", "The plan is begun.", form, **form.given())
        if envelope["ok"]:
            return to_plan(workspace_id)
    active = Plan.objects.filter(pk=workspace_id).first()
    return render(request, "plan_start", "New plan", workspace=workspace, active=active, form=form)


def close(request: HttpRequest, workspace_id: str) -> HttpResponse:
    """Says what goes to the history; POST closes the cycle."""
    workspace = get_object_or_404(Workspace, pk=workspace_id)
    if request.method == "POST":
        if not outdated(request, workspace_id, request.POST.get("seen", "")):
            operate_on(workspace, request, "task_close", "The cycle is closed.")
        return to_plan(workspace_id)
    tasks = Task.objects.current(workspace_id)
    return render(
        request,
        "plan_close",
        "Close the cycle",
        workspace=workspace,
        plan=Plan.objects.filter(pk=workspace_id).first(),
        undecided=Issue.objects.filter(plan=workspace_id, status="pending").count(),
        tasks=tasks.count(),
        open=tasks.exclude(status=TaskStatus.COMPLETED).count(),
        seen=seen(workspace_id),
    )


@form_only(to_plan)
def add_issue(request: HttpRequest, workspace_id: str) -> HttpResponse:
    """Add an issue to the plan; a form that is sent twice adds one."""
    workspace = get_object_or_404(Workspace, pk=workspace_id)
    form = IssueForm(request.POST, auto_id="issue-%s")
    if form.is_valid():
        title, known = form.cleaned_data["title"], form.cleaned_data["seen"]
        if known is not None and Issue.objects.filter(plan=workspace_id, number__gt=known, title=title).exists():
            return to_plan(workspace_id, "#issues")
        about = {"action": "add", "title": title}
        if operate_on(workspace, request, "plan_update", "The issue is added.", form, **about)["ok"]:
            return to_plan(workspace_id, "#issues")
    return _plan(request, workspace, form=form) if form.errors else to_plan(workspace_id)


def issue(request: HttpRequest, issue_id: int) -> HttpResponse:
    """An issue with its decision and who was asked; POST decides it, or decides it anew."""
    row = _issue(issue_id)
    form = DecideForm(posted(request), initial={"summary": row.decision})
    if form.is_valid():
        about = {"issue_id": row.number, **form.cleaned_data}
        envelope = operate_on(row.plan.workspace, request, "plan_decide", "The issue is decided.", form, **about)
        if envelope["ok"]:
            return to_plan(row.plan_id, "#issues")
    return _shown(request, row, form=form)


@form_only(partial(redirect, "admin:plan_issue"))
def change_issue(request: HttpRequest, issue_id: int) -> HttpResponse:
    """Give an issue another title, reopen it, or remove it."""
    row = _issue(issue_id)
    form = IssueChangeForm(request.POST, auto_id="change-%s")
    if form.is_valid():
        action = form.cleaned_data["action"]
        title = {"title": form.cleaned_data["title"]} if action == "edit" else {}
        about = {"action": action, "issue_id": row.number, **title}
        if operate_on(row.plan.workspace, request, "plan_update", SAID[action], form, **about)["ok"]:
            return to_plan(row.plan_id, "#issues") if action == "remove" else redirect("admin:plan_issue", issue_id)
    return _shown(request, row, change=form) if form.errors else redirect("admin:plan_issue", issue_id)


def _issue(issue_id: int) -> Issue:
    return get_object_or_404(Issue.objects.select_related("plan__workspace"), pk=issue_id)


def _shown(request: HttpRequest, row: Issue, **forms: Any) -> HttpResponse:
    known = {agent_id for agent_id in (row.decided_by,) if agent_id and Agent.objects.filter(pk=agent_id).exists()}
    instances = row.how_agent_ids or {}
    return render(
        request,
        "plan_issue",
        f"Issue {row.number}",
        about=row.title,
        issue=row,
        known=known,
        asked=[(name, said, instances.get(name, "")) for name, said in _asked(row)],
        tasks=monitoring.for_issue(row),
        **{
            "form": DecideForm(initial={"summary": row.decision}),
            "change": IssueChangeForm(initial={"title": row.title}, auto_id="change-%s"),
            **forms,
        },
    )
