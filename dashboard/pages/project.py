"""What the pages of a project's plan share: its files are reached where nobody else waits; acts name the project."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from coordination.models import Workspace
from core.operations import runner
from core.operations.errors import NexusError
from core.operations.outside import reach
from core.operations.replies import ENVELOPE, Body, Outcome
from dashboard.forms.base import OperationForm
from dashboard.page import in_words_of_pages, operate_in, operator
from planning.operations.common import OfProject
from planning.toolset import PLANNING


def trouble(request: HttpRequest, workspace: Workspace) -> str:
    """Bring what others wrote into the project's files to the rows; why that cannot be, empty where it can.

    The rows are there to be shown in either case.
    """
    outcome = _silent(workspace) or runner.perform(
        PLANNING, operator(request), "plan_status", {"project_root": workspace.root_realpath}
    )
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
    """`dashboard.page.operate` for an operation of planning; its warnings are told, too."""
    if silent := _silent(workspace):
        envelope = ENVELOPE.body(silent)
        messages.error(request, f"{envelope['error']['message']} ({envelope['error']['code']})")
        return envelope
    about = {"project_root": workspace.root_realpath, **arguments}
    envelope = operate_in(PLANNING, request, name, done, form, **about)
    for warning in envelope["data"].get("warnings", []) if envelope["ok"] else []:
        messages.warning(request, warning)
    return envelope


def to_plan(workspace_id: str, place: str = "") -> HttpResponse:
    """Back to the plan of a workspace."""
    return redirect(f"{reverse('admin:plan')}?workspace={workspace_id}{place}")


def _silent(workspace: Workspace) -> Outcome | None:
    """The error of a directory that does not answer, as on a mount whose server is gone; a call would wait forever."""
    try:
        async_to_sync(reach)(OfProject(project_root=workspace.root_realpath))
    except NexusError as error:
        return Outcome(error=error)
    return None
