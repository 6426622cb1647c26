"""The worktree of an agent of the pool: what it changed there, and what becomes of that."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse

from nexus.control import monitoring
from nexus.control.config import ControlSettings
from nexus.control.models import PoolWorktree, WorktreeState
from nexus.control.toolset import CONTROL
from nexus.core.operations.replies import Body
from nexus.dashboard.forms.pool import DiscardForm
from nexus.dashboard.page import form_only, operate_in, render
from nexus.dashboard.templatetags.nexus import plain
from nexus.web import difference

BACK = partial(redirect, "admin:pool_worktree")


def worktree(request: HttpRequest, pool_agent_id: str) -> TemplateResponse:
    """What an agent changed since it began, and the ways to decide about it."""
    return _page(request, _found(pool_agent_id))


def _page(request: HttpRequest, row: PoolWorktree, **more: Any) -> TemplateResponse:
    on = ControlSettings.current().control
    changes, told = None, {}
    if on and row.state != WorktreeState.DISCARDED:
        told = _operate(request, row, "diff").get("data", {})
        changes = difference.read(told["diff"], told["files"]) if told else None
    return render(
        request,
        "pool_worktree",
        f"Worktree of {plain(row.agent.agent_id)}",
        tree=row,
        agent=row.agent,
        on=on,
        changes=changes,
        files=len(told.get("files", ())),
        truncated=told.get("truncated", False),
        running=monitoring.is_running(row.agent),
        **more,
    )


@form_only(BACK)
def merge(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """Merge it into what it began from; conflicts are told on the page, and then nothing is merged."""
    row = _found(pool_agent_id)
    envelope = _operate(request, row, "merge")
    if envelope["ok"]:
        told = envelope["data"]
        if told["conflicts"]:
            return _page(request, row, conflicts=told["conflicts"])
        if told["merged"]:
            messages.success(request, f"Merged into {plain(row.origin)}, as {told['commit'][:12]}.")
        else:
            messages.info(request, f"There was nothing to merge: {plain(row.origin)} has all of it.")
    return redirect("admin:pool_worktree", row.agent.pk)


@form_only(BACK)
def keep(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """Commit what lies there on its branch, and leave both."""
    row = _found(pool_agent_id)
    _operate(request, row, "keep", f"What lay there is committed on {plain(row.branch)}, and stays.")
    return redirect("admin:pool_worktree", row.agent.pk)


@form_only(BACK)
def discard(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """Remove it with its branch; what was not merged is asked for once more."""
    row, form = _found(pool_agent_id), DiscardForm(request.POST)
    form.full_clean()
    envelope = _operate(request, row, "discard", "The worktree and its branch are removed.", form)
    if not envelope["ok"] and form.errors:
        return _page(request, row, refusal=form)
    return redirect("admin:pool_agent" if envelope["ok"] else "admin:pool_worktree", row.agent.pk)


def _operate(
    request: HttpRequest, row: PoolWorktree, verb: str, done: str = "", form: DiscardForm | None = None
) -> Body:
    """Another agent may bear the name: the worktree is named by its own id."""
    named = {"agent_id": row.agent.agent_id, "worktree_id": row.pk}
    given = form.cleaned_data if form else {}
    return operate_in(CONTROL, request, f"pool_worktree_{verb}", done, form, **named, **given)


def _found(pool_agent_id: str) -> PoolWorktree:
    return get_object_or_404(PoolWorktree.objects.select_related("agent"), agent=pool_agent_id)
