"""The page of checks: what the nexus.toml of each project names, and its approval."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from coordination.forms import WorkspaceFilters
from coordination.models import Workspace
from coordination.toolset import COORDINATION, run
from nexus.web.forms import OperationForm
from nexus.web.page import operate, operator, posted, render

MOST = 100  # projects whose files are read


class ApproveForm(OperationForm):
    project_root = forms.CharField(strip=False)
    digest = forms.CharField()


def checks(request: HttpRequest) -> HttpResponse:
    """List the checks of the projects on this machine, the latest used first, or of `?workspace=`; POST approves what
    was shown."""
    form = ApproveForm(posted(request))
    if form.is_valid():
        operate(COORDINATION, request, "checks_approve", "The checks are approved.", **form.cleaned_data)
        return redirect(request.get_full_path())
    filters = WorkspaceFilters(request.GET)
    chosen = filters.chosen_workspace
    projects = [chosen] if chosen else list(Workspace.objects.order_by("-last_seen_at")[: MOST + 1])
    rows: list[dict[str, Any]] = []
    for project in projects[:MOST]:
        found = run(operator(request), "checks_list", {"project_root": project.root_realpath})
        data = found.get("data", {})
        if found["ok"] and (data["checks"] or data["copy"] or data["symlink"] or chosen):
            rows.append(data)
    return render(request, "handoffs/checks.html", "Checks", filters=filters, rows=rows, more=len(projects) > MOST)
