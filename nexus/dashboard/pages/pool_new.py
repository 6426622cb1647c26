"""A new agent of the pool: what each preset allows, what a parent's ceiling leaves of that, what bounds each runner."""

from __future__ import annotations

from pathlib import Path

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from nexus.control import rules, wording
from nexus.control.config import ControlSettings
from nexus.control.members import find
from nexus.control.models import PoolAgent
from nexus.control.runners import sandbox
from nexus.control.runners.configuration import Runner, Runners, problem, runners
from nexus.control.services.pool import usual_directory
from nexus.control.toolset import CONTROL
from nexus.control.waking import kinds
from nexus.core.operations.errors import NexusError
from nexus.dashboard.forms.filters import NewPoolAgentFilters
from nexus.dashboard.forms.pool import NewPoolAgentForm
from nexus.dashboard.page import operate_in, posted, render
from nexus.dashboard.templatetags.nexus import plain


def new(request: HttpRequest) -> HttpResponse:
    """Create an agent, below `?parent=` if one is named: what that one's ceiling cuts off is told."""
    filters = NewPoolAgentFilters(request.GET)
    named = request.POST.get("parent_agent_id", "") if request.method == "POST" else filters.text("parent")
    parent = find(named) if named else None
    known, wrong = known_runners()
    settings = ControlSettings.current()
    permissions = parent.permissions if parent else None
    below = _usual_directory(parent)
    initial = {"parent_agent_id": parent.agent_id} if parent else {}
    offered = {name: f"{name}: {_described(runner)}" for name, runner in known.by_name.items()} if known else {}
    if known:
        initial["model"] = parent.runner if parent and parent.runner in offered else known.default
    form = NewPoolAgentForm(
        posted(request),
        initial=initial,
        runners=offered,
        wakes=kinds.titles(),
        tools=sorted(rules.TOOLS - (permissions.disabled_tools if permissions else frozenset())),
        below=plain(below),
        day_tokens=settings.pool_wake_tokens,
    )
    if form.is_valid():
        envelope = operate_in(CONTROL, request, "pool_create_agent", "The agent is created.", form, **form.given())
        made = find(envelope["data"]["agent_id"]) if envelope["ok"] else None
        if made is not None:
            return redirect("admin:pool_agent", made.pk)
        if envelope["ok"]:  # and ended again
            messages.info(request, "It has ended again.")
            return redirect("admin:pool")
    return render(
        request,
        "pool_form",
        "New agent of the pool",
        form=form,
        filters=filters,
        on=settings.control,
        wrong=wrong,
        known=known is not None,
        parent=parent,
        gone=plain(named) if named and parent is None else "",
        barren=permissions is not None and not wording.may_have_children(permissions, below),
        ceiling=wording.ceiling(permissions) if permissions else [],
        offers=wording.offers(permissions, below),
        tools=[(choice, " ".join(wording.presets_with(str(choice.data["value"])))) for choice in form["disable_tools"]],
        bounds=[(name, sandbox.in_words(runner)) for name, runner in known.by_name.items()] if known else [],
    )


def _usual_directory(parent: PoolAgent | None) -> str:
    """Empty where it is gone."""
    try:
        return usual_directory(parent)
    except NexusError:
        return ""


def known_runners() -> tuple[Runners | None, str]:
    """The runners of the home, unless they were wrong from the start, and what is wrong with their file."""
    try:
        return runners(), problem()
    except NexusError as error:
        return None, error.message


def _described(runner: Runner) -> str:
    match runner.kind:
        case "acp":
            return f"an ACP agent, {Path(runner.command[0]).name}"
        case "model":
            return f"the model {runner.model}"
        case "rehearsal":
            return "plays a script, no model answers"
