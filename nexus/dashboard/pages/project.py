"""What the pages of a project's plan share: acts name the project, and tell their warnings."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from coordination.models import Workspace
from nexus.core.operations import runner
from nexus.core.operations.replies import ENVELOPE, Body
from nexus.dashboard.page import in_words_of_pages, operate_in, operator
from nexus.planning.toolset import PLANNING
from nexus.web.forms import OperationForm


def trouble(request: HttpRequest, workspace: Workspace) -> str:
    """Bring what others wrote into the project's files to the rows; why that cannot be, empty where it can.

    The rows are there to be shown in either case.
    """
    outcome = runner.perform(PLANNING, operator(request), "plan_status", {"project_root": workspace.root_realpath})
    envelope = in_words_of_pages(ENVELOPE.body(outcome))
    return "" if envelope["ok"] else f"{envelope['error']['message']} ({envelope['error']['code']})"


def operate_on(
    workspace: Workspace,
    request: HttpRequest,
    name: str,
    done: str,
    form: OperationForm | None = None,
    /,
    **arguments: Any,
) -> Body:
    """`nexus.dashboard.page.operate` for an operation of planning; its warnings are told, too."""
    about = {"project_root": workspace.root_realpath, **arguments}
    envelope = operate_in(PLANNING, request, name, done, form, **about)
    for warning in envelope["data"].get("warnings", []) if envelope["ok"] else []:
        messages.warning(request, warning)
    return envelope


def to_plan(workspace_id: str, place: str = "") -> HttpResponse:
    """Back to the plan of a workspace."""
    return redirect(f"{reverse('admin:plan')}?workspace={workspace_id}{place}")
