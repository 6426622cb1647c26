"""A task of a plan: what it is, what it waits for, who has it, and what an operator changes about it."""

from __future__ import annotations

from functools import partial

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from coordination.models import Agent, Workspace
from handoffs.models import Handoff
from nexus.dashboard.forms.planning import StatusForm, TaskForm
from nexus.dashboard.page import form_only, posted, render
from nexus.dashboard.pages.project import operate_on, to_plan, trouble
from nexus.planning import documents, monitoring
from nexus.planning.models import Task

FIELDS = ("title", "context", "deps", *documents.TASK_FIELDS)
CARRIED = 20  # handoffs of a task that are listed
CLOSED = "The cycle of this task was closed; its number is another task's now, and nothing was changed."


def new(request: HttpRequest, workspace_id: str) -> HttpResponse:
    """Add a task; a form that is sent twice adds one."""
    workspace = get_object_or_404(Workspace, pk=workspace_id)
    current = Task.objects.current(workspace_id)
    last = current.order_by("-number").values_list("number", flat=True).first()
    form = TaskForm(posted(request), initial={"seen": last or 0}, agents=_agents())
    if form.is_valid():
        given, known = form.given(), form.cleaned_data["seen"]
        added = (
            current.filter(number__gt=known, title=given["title"], context=given["context"])
            if known is not None
            else None
        )
        if added is not None and added.exists():
            return to_plan(workspace_id, "#tasks")
        if operate_on(workspace, request, "task_add", "The task is added.", form, **given)["ok"]:
            return to_plan(workspace_id, "#tasks")
    return render(request, "task_form", "New task", workspace=workspace, form=form)


def task(request: HttpRequest, task_key: str) -> HttpResponse:
    """A task among the others; POST changes what was changed in the form."""
    row = get_object_or_404(Task.objects.select_related("workspace"), pk=task_key)
    problem = ""
    if request.method != "POST" and row.closed_at is None:
        problem = trouble(request, row.workspace)
        row = get_object_or_404(Task.objects.select_related("workspace"), pk=task_key)  # as the files have it
    form = TaskForm(posted(request), initial={name: getattr(row, name) for name in FIELDS}, agents=_agents())
    if form.is_valid():
        changes = form.changes()
        if not changes:
            messages.info(request, "Nothing was changed.")
            return redirect("admin:task", task_key)
        if row.closed_at is not None:
            messages.error(request, CLOSED)
            return redirect("admin:task", task_key)
        given = {"id": row.number, **changes}
        if operate_on(row.workspace, request, "task_edit", "The task is changed.", form, **given)["ok"]:
            return redirect("admin:task", task_key)
    carried = Handoff.objects.filter(task_key=task_key).defer("payload", "result").order_by("-created_event_id")
    return render(
        request,
        "task",
        f"Task {row.number}",
        about=row.title,
        task=row,
        problem=problem,
        form=form,
        handoffs=carried[:CARRIED],
        standing=monitoring.standing(row) if row.closed_at is None else None,
        statuses=[(value, label) for value, label in StatusForm.base_fields["status"].choices if value != row.status],  # type: ignore[attr-defined]
    )


@form_only(partial(redirect, "admin:task"))
def change_status(request: HttpRequest, task_key: str) -> HttpResponse:
    """Give a task another status."""
    row = get_object_or_404(Task.objects.select_related("workspace"), pk=task_key)
    form = StatusForm(request.POST)
    if row.closed_at is not None:
        messages.error(request, CLOSED)
    elif form.is_valid():
        status = form.cleaned_data["status"]
        said = f"The task is {status.replace('_', ' ')}."
        operate_on(row.workspace, request, "task_update", said, id=row.number, status=status)
    else:
        messages.error(request, str(form.errors["status"][0]))
    return redirect("admin:task", task_key)


def _agents() -> list[str]:
    return list(Agent.objects.order_by("agent_id").values_list("agent_id", flat=True))
