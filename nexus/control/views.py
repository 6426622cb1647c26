"""The pages of the pool: agents and their transcripts, new agents, worktrees, questions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import mark_safe

from handoffs.check_runs import sheet
from nexus.control import selectors
from nexus.control.agents import monitoring, transcript, wake_kinds
from nexus.control.agents.pool import usual_directory
from nexus.control.attention import actions_for, quick_actions
from nexus.control.config import ControlSettings
from nexus.control.forms import (
    AnswerForm,
    ApproveForm,
    CommentForm,
    NewPoolAgentForm,
    SpendingFilters,
    TranscriptFilters,
    WorkForm,
)
from nexus.control.models import (
    Entry,
    PoolAgent,
    PoolWorktree,
    Question,
    QuestionKind,
    ReviewComment,
    RuleScope,
    Turn,
    WorktreeState,
    describe_scope,
)
from nexus.control.permissions import protected_paths, rules
from nexus.control.permissions.members import find
from nexus.control.permissions.operator_rules import every as known_rules
from nexus.control.permissions.operator_rules import name_in
from nexus.control.review import reviews as reviewing
from nexus.control.runners import contexts, sandbox
from nexus.control.runners_file import Runner, Runners, remarks, runners
from nexus.control.toolset import CONTROL
from nexus.control.worktrees import trees, worktrees
from nexus.core.apps import actions
from nexus.core.clock import now
from nexus.core.operations.errors import NexusError
from nexus.web import difference
from nexus.web.forms import OFFERED
from nexus.web.page import form_only, operate, posted, render
from nexus.web.templatetags.nexus import plain

LISTED = 100  # agents who spent most
NEWEST, PAGE = 20, 50  # entries at first, and of a page that was asked for
ASKED = 20  # questions on an agent's page
SHOWN = 100  # rows of work to review


def agent(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """Show an agent with its newest entries, or those before `?before=`; `?whole=` shows one in full. POST sends it a
    message."""
    row = _get_agent(pool_agent_id)
    if request.method != "POST":
        return _agent(request, row, WorkForm())
    form = WorkForm(request.POST)
    if form.is_valid() and _lives(request, row):
        arguments = {**form.cleaned_data, "source": "dashboard", "timeout_seconds": 0}
        if operate(CONTROL, request, "pool_send", "", form, agent_id=row.agent_id, **arguments)["ok"]:
            return redirect("admin:pool_agent", row.pk)
    return _agent(request, row, form)


def _agent(request: HttpRequest, row: PoolAgent, form: WorkForm) -> TemplateResponse:
    filters = TranscriptFilters(request.GET)
    before = filters.number("before")
    part = monitoring.part(row, before=before, limit=NEWEST if before is None else PAGE)
    [member] = monitoring.members([row])
    known, wrong = known_runners()
    runner = known.by_name.get(row.runner) if known else None
    tokens = contexts.tokens(row) if known else None
    return render(
        request,
        "control/pool_agent.html",
        f"Agent {plain(row.agent_id)}",
        agent=row,
        filters=filters,
        on=ControlSettings.current().control,
        work=form,
        part=part,
        upto=part.entries[-1].position + 1 if part.entries else 0,
        tailing=not part.later,
        **transcript_context(row, part.entries, filters.number("whole")),
        running=member.turn,
        waiting=member.waiting,
        needs=member.needs,
        spent=monitoring.spent(row),
        tokens=tokens,
        nearly_full=tokens is not None and contexts.nearly_fill(tokens),
        runner=runner,
        longest=timedelta(seconds=runner.turn_seconds) if runner else None,
        unknown=known is not None and runner is None,
        wrong=wrong,
        permissions=rules.describe_permissions(row.permissions, protected_paths.home()),
        bounded=sandbox.describe_limits(runner) if runner else "",
        tree=PoolWorktree.objects.filter(agent=row).first(),
        waits=[
            (which, title, [(question, quick_actions(question)) for question in found])
            for which, title, found in (
                ("asked", "It asks you", monitoring.questions_of(row, ASKED)),
                ("below", "Agents below it ask you", monitoring.questions_below(row, ASKED)),
            )
            if found
        ],
        rules=known_rules(row),
        **_waking_context(row),
        session=_session_context(row),
        fertile=rules.may_have_children(row.permissions, row.cwd),
        children=PoolAgent.objects.living().filter(parent=row).count(),
    )


def _session_context(row: PoolAgent) -> dict[str, Any] | None:
    """Return what an agent's process told of its session, its options with the values that hold from the next turn."""
    if row.session is None:
        return None
    told = contexts.session(row)
    options = [
        {
            **each,
            "value": row.options.get(each["id"], each["value"]),
            "choices": [{**choice, "json": json.dumps(choice["value"])} for choice in each.get("choices", ())],
        }
        for each in told.get("options", [])
    ]
    return {**told, "options": options}


def _waking_context(row: PoolAgent) -> dict[str, Any]:
    """Return what wakes an agent, its token limit, and the limit that holds it."""
    if not row.wake_on:
        return {"wakes": []}
    titles = wake_kinds.kind_titles()
    return {
        "wakes": [titles.get(name, name) for name in row.wake_on],
        "budget": wake_kinds.budget_of(row),
        "taken": wake_kinds.spent_tokens(row, now()),
        "dead_letters": monitoring.dead_letters(row) if row.ended_at is None else 0,
        "given_up": monitoring.given_up(row, ASKED) if row.ended_at is None else [],
        "held": wake_kinds.why_held(row) if row.held_why and row.ended_at is None else "",
    }


def transcript_context(row: PoolAgent, shown: list[Entry], whole: int | None = None) -> dict[str, Any]:
    """Return the rows of a transcript: each entry with the calls that it makes, or the call that it is the result
    of."""
    calls = monitoring.calls(row, shown)
    return {
        "said": [
            (entry, transcript.tool_calls(entry.meta), calls.get(entry.tool_call_id or "", "a tool")) for entry in shown
        ],
        "whole": whole,
        "excerpt": monitoring.EXCERPT,
    }


def tail(request: HttpRequest, pool_agent_id: str) -> TemplateResponse:
    """Show the entries after the first `?after=`, for the live page; at most one page of them, so the page may have to
    ask again."""
    row = _get_agent(pool_agent_id)
    after = TranscriptFilters(request.GET).number("after") or 0
    entries = monitoring.newer(row, after=after, limit=PAGE + 1)
    shown = entries[:PAGE]
    context = {"upto": shown[-1].position + 1 if shown else after, "more": len(entries) > PAGE, "agent": row}
    return TemplateResponse(request, "control/pool_rows.html", {**context, **transcript_context(row, shown)})


def _get_agent(pool_agent_id: str) -> PoolAgent:
    return get_object_or_404(PoolAgent.objects.select_related("parent"), pk=pool_agent_id)


def _lives(request: HttpRequest, row: PoolAgent) -> bool:
    """Return whether the agent is living; if not, say so. Operations take a name, which may belong to another agent by
    now."""
    if row.ended_at is not None:
        messages.warning(request, f"Nothing was done: {plain(row.agent_id)} has ended.")
    return row.ended_at is None


def new_agent_form(request: HttpRequest) -> NewPoolAgentForm:
    """Return the form of a new agent; below `?parent=` it offers what that agent's ceiling leaves."""
    given = posted(request)
    named = request.GET.get("parent", "") if given is None else given.get("parent_agent_id", "")
    parent = find(named.replace("\x00", "")) if named else None
    known, wrong = known_runners()
    permissions = parent.permissions if parent else None
    tools = sorted(rules.TOOLS - (permissions.disabled_tools if permissions else frozenset()))
    below = _usual_directory(parent)
    by_name = known.by_name if known else {}
    initial = {"model": parent.runner if parent and parent.runner in by_name else known.default} if known else {}
    offers = rules.offers(permissions, below)
    presets = {str(offer.preset): f"{offer.preset}: {offer.what}" for offer in offers if not offer.refused}
    limits = " ".join(f"{name}: {sandbox.describe_limits(runner)}." for name, runner in by_name.items())
    return NewPoolAgentForm(
        given,
        initial={**initial, "parent_agent_id": parent.agent_id if parent else ""},
        offered={
            "parent_agent_id": {"": "nobody: no limit above it", **_parents(parent)},
            "model": {name: f"{name}: {_described(runner)}" for name, runner in by_name.items()},
            "preset": presets,
            "disable_tools": dict(zip(tools, tools, strict=True)),
            "wake_on": wake_kinds.kind_titles(),
        },
        usual={"cwd": plain(below), "wake_tokens": str(wake_kinds.WAKE_TOKENS)},
        about={
            "parent_agent_id": plain(f"{'. '.join(rules.ceiling(permissions))}.") if permissions else "",
            "model": plain(f"{wrong} {limits}"),
            "preset": "" if presets else plain(f"Nothing can be created there: {offers[0].refused}"),
            "worktree": (
                "An agent that may write gets a clone of the last commit, unless you name paths for it below. If it "
                f"works in the directory itself, you trust it with what it writes: {rules.LEFT_BEHIND}. It may only "
                "read the .git there and what git's configuration names."
            ),
        },
    )


def _parents(chosen: PoolAgent | None) -> dict[str, str]:
    """Return the agents to offer as a parent: the chosen one, and the newest that may have children."""
    newest = PoolAgent.objects.living().filter(preset=rules.Preset.TRUSTED).order_by("-pool_agent_id")[:OFFERED]
    fertile = [agent for agent in newest if rules.may_have_children(agent.permissions, agent.cwd)]
    return {agent.agent_id: agent.agent_id for agent in [*([chosen] if chosen else []), *fertile]}


def _usual_directory(parent: PoolAgent | None) -> str:
    """Return the default directory; empty if it is gone."""
    try:
        return usual_directory(parent)
    except NexusError:
        return ""


def known_runners() -> tuple[Runners | None, str]:
    """Return the runners of the home (None if their file was never valid), and what is wrong with the file."""
    try:
        return runners(), remarks()
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


def reviews(request: HttpRequest) -> TemplateResponse:
    """Show the work that waits for review, in its order."""
    rows = reviewing.desk()[:SHOWN]
    return render(request, "control/reviews.html", "Review", rows=rows, on=ControlSettings.current().control)


def review(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """Show an agent's work with what a person decides by: summary, checks, comments, diff and transcript. POST drafts a
    comment."""
    row = _worktree_of(pool_agent_id)
    named = {"agent_id": row.agent.agent_id, "worktree_id": row.pk}
    on = ControlSettings.current().control
    answer = {}
    if on and row.state != WorktreeState.DISCARDED:
        answer = operate(CONTROL, request, "pool_get_review", "", **named).get("data", {})
    form = CommentForm(posted(request), answer.get("files", ()), answer.get("seen", ""))
    if form.is_valid() and answer:
        done = operate(CONTROL, request, "pool_add_comment", "", form, **named, **form.arguments())
        if done["ok"]:
            return redirect(f"{reverse('admin:pool_review', args=[row.agent.pk])}#{done['data']['comment_id']}")
    changes = difference.read_diff(answer["diff"], answer["changes"]) if answer else None
    comments, older = reviewing.comments(row)
    if changes:
        _put_below(changes, [each for each in comments if each.content == answer["seen"]])
    checks, handoff = answer.get("checks", [])[-1:], reviewing.handoff_of(row)
    part = monitoring.part(row.agent, before=None, limit=NEWEST)
    response = render(
        request,
        "control/pool_review.html",
        f"Review of {plain(row.agent.agent_id)}",
        tree=row,
        agent=row.agent,
        on=on,
        handoff=handoff,
        work=reviewing.title_of(row, handoff),
        summary=answer.get("summary", ""),
        checks=checks[0] if checks else None,
        facts=sheet(checks[0]["facts"]) if checks and checks[0]["facts"] else (),
        seen=answer.get("seen", ""),
        unseen=[(json.dumps(each), each) for each in reviewing.by_directory(changes.unseen)] if changes else [],
        why_not=answer.get("why_not", ""),
        changes=changes,
        view=difference.view_of(request),
        files=len(answer.get("files", ())),
        truncated=answer.get("truncated", False),
        running=monitoring.is_running(row.agent),
        kept_ref=f"{worktrees.own(row).ref(trees.DISCARDED)}/work",
        comments=comments,
        comments_left_off=older,
        drafts=[each for each in comments if each.sent_at is None],
        form=form,
        earlier=part.earlier,
        **transcript_context(row.agent, part.entries),
    )
    difference.remember_view(request, response)
    return response


def _put_below(changes: difference.Changes, comments: Sequence[ReviewComment]) -> None:
    """Put comments under the last of their lines."""
    about = defaultdict(list)
    for comment in comments:
        about[comment.path, comment.side, comment.last_line].append(comment)
    for file in changes.files:
        for row in file.rows:
            sides = (("old", row.old), ("new", row.new))
            found = [each for side, line in sides if line for each in about.get((file.name, side, line), ())]
            said = (render_to_string("control/review_comment.html", {"comment": each, "below": True}) for each in found)
            row.below = mark_safe("".join(said))  # noqa: S308  # templates escape what they are given


@form_only(partial(redirect, "admin:pool_review"))
def approve(request: HttpRequest, pool_agent_id: str) -> HttpResponse:
    """Approve the work that the page showed."""
    row, form = _worktree_of(pool_agent_id), ApproveForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("Say what you saw.")
    named = {"agent_id": row.agent.agent_id, "worktree_id": row.pk}
    done = operate(CONTROL, request, "pool_approve_work", "It waits in the merge queue.", **named, **form.cleaned_data)
    return (
        redirect("admin:control_worktreemerge_changelist")
        if done["ok"]
        else redirect("admin:pool_review", row.agent.pk)
    )


def _worktree_of(pool_agent_id: str) -> PoolWorktree:
    return get_object_or_404(PoolWorktree.objects.select_related("agent"), agent=pool_agent_id)


def trace(request: HttpRequest, run_id: str) -> TemplateResponse:
    """Show what went between a run's agent, or its model's provider, and Nexus, after the first `?after=` lines."""
    turn = get_object_or_404(Turn.objects.select_related("agent"), pk=run_id)
    after = TranscriptFilters(request.GET).number("after") or 0
    lines, later = selectors.trace(turn, after, PAGE)
    return render(
        request,
        "control/trace.html",
        f"Trace of a run of {plain(turn.agent.agent_id)}",
        run=turn,
        lines=lines,
        after=after,
        later=later,
        excerpt=monitoring.EXCERPT,
        longest=f":{monitoring.EXCERPT}",
    )


def spending(request: HttpRequest) -> TemplateResponse:
    """Show who spent most within `?days=`."""
    filters = SpendingFilters(request.GET)
    since = now() - timedelta(days=int(filters.text("days") or 1))
    rows = _by_agent(selectors.spending(since, LISTED))
    return render(request, "control/spending.html", "Spent by agents", filters=filters, spending=rows)


def question(request: HttpRequest, question_id: str) -> HttpResponse:
    """Show one question in full, and the actions on it. POST answers it: always by a rule for `scope`."""
    found = get_object_or_404(Question.objects.with_parents().select_related("turn"), pk=question_id)
    names, known = actions_for(found, now()), actions()
    in_place = {"pool_allow_always", *(["pool_answer"] if found.kind == QuestionKind.QUESTION else [])}
    form = AnswerForm(posted(request), _rules_of_always(found))
    if form.is_valid():
        operate(
            CONTROL, request, form.cleaned_data["verdict"], "It is answered.", question_id=found.pk, **form.arguments()
        )
        return redirect("admin:question", found.pk)
    return render(
        request,
        "control/question.html",
        "Question",
        about=found.title,
        question=found,
        actions=[known[name] for name in names if name not in in_place],
        to_answer="pool_answer" in names and "pool_answer" in in_place,
        answer=form,
        can_always="pool_allow_always" in names,
        rules=found.rules.order_by("rule_id"),
    )


def _rules_of_always(question: Question) -> list[tuple[str, str]]:
    """Return the rules that "always" can write for a question, in words, by scope."""
    what = f"allow {', '.join(question.always_allows)}"
    scopes = RuleScope.AGENT, *((RuleScope.RUNNER, RuleScope.PROJECT) if question.pool_agent else ())
    return [(scope.value, plain(f"{what}, for {describe_scope(scope, name_in(question, scope))}")) for scope in scopes]


def _by_agent(rows: Sequence[selectors.Spending]) -> list[dict[str, Any]]:
    """Return one row for each agent and directory, whatever currencies its runs were paid in."""
    found: dict[tuple[str, str], list[selectors.Spending]] = defaultdict(list)
    for row in rows:
        found[row.agent_id, row.project].append(row)
    return [
        {
            "agent_id": agent_id,
            "project": project,
            "runs": sum(row.runs for row in theirs),
            "tokens": sum(row.tokens for row in theirs),
            "money": [row.money for row in theirs if row.money],
            "unknown": sum(row.runs for row in theirs if not row.money),
        }
        for (agent_id, project), theirs in found.items()
    ]
