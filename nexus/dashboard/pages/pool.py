"""The pool: the agents that the hub runs itself, what each is at and said, and what an operator does there."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse

from nexus.control import monitoring, selectors, wording
from nexus.control.attention import at_a_glance
from nexus.control.config import ControlSettings
from nexus.control.models import Entry, PoolAgent, PoolWorktree, Question, TurnStatus
from nexus.control.runners import sandbox
from nexus.control.runners.configuration import problem, start_programs
from nexus.control.toolset import CONTROL
from nexus.control.waking import bounds, kinds
from nexus.core.clock import now
from nexus.dashboard.forms.filters import PoolFilters, TranscriptFilters
from nexus.dashboard.forms.pool import TurnForm, WorkForm
from nexus.dashboard.page import form_only, operate_in, render
from nexus.dashboard.pages.pool_new import known_runners
from nexus.dashboard.templatetags.nexus import plain

LISTED = 100  # agents of a page
NEWEST, PAGE = 20, 50  # entries at first, and of a page that was asked for
TURNS, CHILDREN, ASKED = 20, 100, 20  # of an agent that its page lists


def pool(request: HttpRequest) -> TemplateResponse:
    """The living agents as a tree, or with `?state=ended` those of before; `?q=` narrows them, `?page=` goes on."""
    filters = PoolFilters(request.GET)
    page = max(filters.number("page") or 1, 1)
    ended = filters.text("state") == "ended"
    listed = monitoring.ended if ended else monitoring.living
    rows = listed(filters.text("q"), offset=(page - 1) * LISTED, limit=LISTED + 1)
    return render(
        request,
        "pool",
        "Pool",
        filters=filters,
        on=ControlSettings.current().control,
        wrong=problem(),
        rehearsing=not start_programs(),
        counts=monitoring.counts(),
        asks=Question.objects.waiting(now()).count(),
        rows=rows[:LISTED],
        ended=ended,
        page=page,
        more=len(rows) > LISTED,
        query=filters.query("page"),
        narrowed=bool(filters.text("q")),
    )


def agent(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """An agent: its newest entries, or those before `?before=`; `?whole=` shows one whole. POST sends it work."""
    row = _found(pool_agent_id)
    if request.method != "POST":
        return _agent(request, row, WorkForm())
    form = WorkForm(request.POST)
    if form.is_valid() and _lives(request, row):
        arguments = {**form.cleaned_data, "source": "dashboard", "timeout_seconds": 0}
        if operate_in(CONTROL, request, "pool_send", "", form, agent_id=row.agent_id, **arguments)["ok"]:
            return redirect("admin:pool_agent", row.pk)
    return _agent(request, row, form)


def _agent(request: HttpRequest, row: PoolAgent, form: WorkForm) -> TemplateResponse:
    filters = TranscriptFilters(request.GET)
    before = filters.number("before")
    part = monitoring.part(row, before=before, limit=NEWEST if before is None else PAGE)
    children = PoolAgent.objects.living().filter(parent=row)
    turns = monitoring.open_turns(row, TURNS)
    known, wrong = known_runners()
    runner = known.by_name.get(row.runner) if known else None
    tokens = selectors.tokens(row) if known else None
    return render(
        request,
        "pool_agent",
        f"Agent {plain(row.agent_id)}",
        agent=row,
        filters=filters,
        on=ControlSettings.current().control,
        work=form,
        part=part,
        upto=part.entries[-1].position + 1 if part.entries else 0,
        tailing=not part.later,
        **_said(row, part.entries, filters.number("whole")),
        turns=[*turns, *monitoring.ended_turns(row, TURNS)],
        running=next((turn for turn in turns if turn.status == TurnStatus.RUNNING), None),
        waiting=any(turn.status == TurnStatus.QUEUED for turn in turns),
        spent=monitoring.spent(row),
        tokens=tokens,
        nearly_full=tokens is not None and selectors.nearly_fill(tokens),
        runner=runner,
        longest=timedelta(seconds=runner.turn_seconds) if runner else None,
        unknown=known is not None and runner is None,
        wrong=wrong,
        permissions=wording.in_words(row.permissions),
        bounded=sandbox.in_words(runner) if runner else "",
        tree=PoolWorktree.objects.filter(agent=row).first(),
        asked=[(question, at_a_glance(question)) for question in monitoring.asked(row, ASKED)],
        always=monitoring.allowed_always(row, ASKED),
        **_woken(row),
        fertile=wording.may_have_children(row.permissions, row.cwd),
        children=list(children.order_by("pool_agent_id")[:CHILDREN]),
        more_children=max(children.count() - CHILDREN, 0),
    )


def _woken(row: PoolAgent) -> dict[str, Any]:
    """What wakes an agent, what that may cost, and which bound keeps it from it."""
    if not row.wake_on:
        return {"wakes": []}
    titles = kinds.titles()
    return {
        "wakes": [titles.get(name, name) for name in row.wake_on],
        "budget": bounds.budget_of(row),
        "taken": bounds.spent(row, now()),
        "dead_letters": monitoring.dead_letters(row) if row.ended_at is None else 0,
        "given_up": monitoring.given_up(row, ASKED) if row.ended_at is None else [],
        "held": bounds.why_held(row) if row.held_why and row.ended_at is None else "",
    }


def _said(row: PoolAgent, shown: list[Entry], whole: int | None = None) -> dict[str, Any]:
    """What the rows of a transcript show: each entry with the calls that it makes, or what it is the result of."""
    calls = monitoring.calls(row, shown)
    return {
        "said": [
            (entry, monitoring.tool_calls(entry.meta), calls.get(entry.tool_call_id or "", "a tool")) for entry in shown
        ],
        "whole": whole,
        "excerpt": monitoring.EXCERPT,
    }


def tail(request: HttpRequest, pool_agent_id: str) -> TemplateResponse:
    """The entries behind the first `?after=`, for the live page; at most a page of them, then it is asked again."""
    row = _found(pool_agent_id)
    after = TranscriptFilters(request.GET).number("after") or 0
    entries = monitoring.newer(row, after=after, limit=PAGE + 1)
    shown = entries[:PAGE]
    context = {"upto": shown[-1].position + 1 if shown else after, "more": len(entries) > PAGE, "agent": row}
    return TemplateResponse(request, "dashboard/pool_rows.html", {**context, **_said(row, shown)})


@form_only(partial(redirect, "admin:pool_agent"))
def cancel(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """Stop a turn that waits or runs."""
    row, form = _found(pool_agent_id), TurnForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("Name the turn to stop.")
    if _lives(request, row):
        envelope = operate_in(CONTROL, request, "pool_cancel", "", agent_id=row.agent_id, **form.cleaned_data)
        if envelope["ok"] and envelope["data"]["cancelled"]:
            messages.success(request, "The turn is stopped.")
        elif envelope["ok"]:
            messages.info(request, "This turn had ended already.")
    return redirect("admin:pool_agent", row.pk)


@form_only(partial(redirect, "admin:pool_agent"))
def compact(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """Fold what was said before the last turns into a summary."""
    row = _found(pool_agent_id)
    if _lives(request, row):
        envelope = operate_in(CONTROL, request, "pool_compact", "", agent_id=row.agent_id)
        if envelope["ok"] and envelope["data"]["compacted"]:
            messages.success(request, f"The context is {envelope['data']['tokens_saved']} tokens shorter.")
        elif envelope["ok"]:
            messages.info(request, "There is nothing to compact yet.")
    return redirect("admin:pool_agent", row.pk)


@form_only(partial(redirect, "admin:pool_agent"))
def end(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """End an agent, and what it is at."""
    row = _found(pool_agent_id)
    if _lives(request, row):
        operate_in(CONTROL, request, "pool_destroy_agent", f"{plain(row.agent_id)} has ended.", agent_id=row.agent_id)
    return redirect("admin:pool_agent", row.pk)


def _found(pool_agent_id: str) -> PoolAgent:
    return get_object_or_404(PoolAgent.objects.select_related("parent"), pk=pool_agent_id)


def _lives(request: HttpRequest, row: PoolAgent) -> bool:
    """Whether it can be acted on: operations take a name, and another agent may have that of one that ended."""
    if row.ended_at is not None:
        messages.warning(request, f"Nothing was done: {plain(row.agent_id)} has ended.")
    return row.ended_at is None
