"""Agents and keys: the team, each agent's profile and limits, and how its client connects."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache

from coordination import debts, presence
from coordination.forms import KeyForm, LimitsForm, NewAgentForm, ProfileForm, SessionForm, limits_of, profile_of
from coordination.log.lines import lines, without_quiet
from coordination.log.selectors import events_by, newest_event_id
from coordination.models import Agent, AgentKey, Event, LimitScope, Session
from coordination.routing import capability_set
from coordination.toolset import COORDINATION
from handoffs import monitoring as handoffs_monitoring
from inbox import monitoring as inbox_monitoring
from nexus.control import members
from nexus.core.clock import now
from nexus.dashboard.forms import AgentFilters, ArrivalFilters
from nexus.dashboard.views.lives import day_of
from nexus.dashboard.views.roster import works
from nexus.hooks.clients import APP_DATA, CLIENTS, snippet
from nexus.hooks.setup import program, settings_flags
from nexus.web.page import form_only, operate, posted, render
from nexus.web.templatetags.nexus import plain

SHOWN_SESSIONS, SHOWN_EVENTS, SHOWN_HANDOFFS = 10, 10, 10
PAGE = 100  # agents
EXAMINED_EVENTS = 100  # searched for events that are not signs of life
# The page of a debt, by kind.
DEBTS = {"handoff": "handoff", "verdict": "handoff", "message": "mail", "task": "task", "question": "reservation"}
ORDERED = ("claude-code", "claude-desktop", "cursor", "vscode", "windsurf", "codex", "json")


def agents(request: HttpRequest) -> TemplateResponse:
    """Show agents with presence, key and inbox, by id; `?page=` pages, `?q=` filters by id, role or capability."""
    moment = now()
    filters = AgentFilters(request.GET)
    words, page = filters.text("q").lower(), max(filters.number("page") or 1, 1)
    shown, more = _page(words, page)
    names = [row.agent_id for row in shown]
    inboxes = inbox_monitoring.inboxes(moment, names)
    pool = members.names()
    keys = dict(AgentKey.objects.filter(agent__in=names).values_list("agent_id", "is_active"))
    rows = [
        {
            "state": state,
            "in_pool": state.agent_id in pool,
            "capabilities": sorted(capability_set(state.agent.capabilities)),
            "inbox": inboxes.get(state.agent_id),
            "key": keys.get(state.agent_id),
        }
        for state in presence.states_of(shown, moment)
    ]
    return render(
        request,
        "dashboard/agents.html",
        "Agents",
        rows=rows,
        filters=filters,
        page=page,
        more=more,
        query=filters.query("page"),
    )


def _page(words: str, page: int) -> tuple[list[Agent], bool]:
    """Return the agents on a page, and whether there are more."""
    start = (page - 1) * PAGE
    rows = Agent.objects.order_by("agent_id")
    if words:
        found = list(islice((row for row in rows if words in _searchable(row)), start, start + PAGE + 1))
    else:
        found = list(rows[start : start + PAGE + 1])
    return found[:PAGE], len(found) > PAGE


def _searchable(agent: Agent) -> str:
    return " ".join([agent.agent_id, agent.role or "", *sorted(capability_set(agent.capabilities))]).lower()


@never_cache
def new(request: HttpRequest) -> HttpResponse:
    """Create an agent; the response to the form is the only page that shows its key."""
    form = NewAgentForm(posted(request))
    if form.is_valid():
        envelope = operate(COORDINATION, request, "agent_create", "The agent is created.", form, **form.profile())
        if envelope["ok"]:
            return _with_key(request, envelope["data"]["agent_id"], envelope["data"]["api_key"])
    return render(request, "dashboard/agent_form.html", "New agent", form=form)


@never_cache
def agent(request: HttpRequest, agent_id: str) -> HttpResponse:
    """Show one agent: profile, limits, key, sessions, inbox, latest events. POST changes the profile."""
    row = _get_agent(agent_id)
    form = ProfileForm(posted(request), initial=profile_of(row))
    if form.is_valid():
        saved = operate(
            COORDINATION, request, "agent_update", "The profile is saved.", form, agent_id=agent_id, **form.changes()
        )
        if saved["ok"]:
            return redirect("admin:agent", agent_id)
    return _agent(request, row, form, LimitsForm(initial=limits_of(LimitScope.AGENT, agent_id), role=row.role))


@form_only(partial(redirect, "admin:agent"))
@never_cache
def limit(request: HttpRequest, agent_id: str) -> HttpResponse:
    """Set an agent's limits, and the operations that it may use."""
    row = _get_agent(agent_id)
    form = LimitsForm(request.POST, role=row.role)
    if form.is_valid():
        saved = operate(
            COORDINATION, request, "limits_update", "The limits are saved.", form, agent_id=agent_id, **form.given()
        )
        if saved["ok"]:
            return redirect("admin:agent", agent_id)
    return _agent(request, row, ProfileForm(initial=profile_of(row)), form)


def _agent(request: HttpRequest, row: Agent, form: ProfileForm, limits: LimitsForm) -> TemplateResponse:
    agent_id, moment = row.agent_id, now()
    sessions = list(
        Session.objects.filter(agent_id=agent_id).select_related("workspace").order_by("-started_at")[:SHOWN_SESSIONS]
    )
    state = presence.state_of(row, moment)
    return render(
        request,
        "dashboard/agent.html",
        f"Agent {plain(agent_id)}",
        agent=row,
        in_pool=members.find(agent_id),
        state=state,
        form=form,
        limits=limits,
        key=AgentKey.objects.filter(agent_id=agent_id).first(),
        sessions=sessions,
        inbox=inbox_monitoring.inbox_of(agent_id, moment),
        calls=_waiting_calls(request, agent_id),
        owes=[(debt, _page_of(debt)) for debt in debts.owed_by(agent_id)],
        works=works(moment, agent_id)[agent_id],
        offered=handoffs_monitoring.offered_by(agent_id, SHOWN_HANDOFFS),
        doings=lines(without_quiet(events_by(agent_id, EXAMINED_EVENTS))[:SHOWN_EVENTS]),
        day=day_of(agent_id, moment),
    )


def _waiting_calls(request: HttpRequest, agent_id: str) -> list[dict[str, Any]]:
    """Return the agent's MCP calls that wait as tasks."""
    envelope = operate(COORDINATION, request, "mcp_task_list", "", agent_id=agent_id, limit=SHOWN_EVENTS)
    rows = envelope["data"]["tasks"] if envelope["ok"] else []
    return [{**row, **{at: datetime.fromisoformat(row[at]) for at in ("since", "until")}} for row in rows]


def _page_of(debt: debts.Debt) -> str:
    page = DEBTS[debt.kind]
    if page == "mail":
        return f"{reverse('admin:mail')}?{urlencode({'m': debt.identifier})}"
    return reverse(f"admin:{page}", args=[debt.identifier])


@form_only(partial(redirect, "admin:agent"))
@never_cache
def key(request: HttpRequest, agent_id: str) -> HttpResponse:
    """Issue a new key (shown once), or disable or enable the present one."""
    form = KeyForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("Issue, activate or deactivate a key.")
    what = form.cleaned_data["what"]
    if what == "issue":
        envelope = operate(
            COORDINATION, request, "agent_key_issue", "The new key is below; the old one is dead.", agent_id=agent_id
        )
        if envelope["ok"]:
            return _with_key(request, agent_id, envelope["data"]["api_key"])
    else:
        active = what == "activate"
        done = "The key is in service again." if active else "The key is deactivated."
        operate(COORDINATION, request, "agent_key_set_active", done, agent_id=agent_id, active=active)
    return redirect("admin:agent", agent_id)


@form_only(partial(redirect, "admin:agent"))
def delete(request: HttpRequest, agent_id: str) -> HttpResponse:
    """Remove an agent from the team."""
    envelope = operate(COORDINATION, request, "agent_delete", f"{agent_id} is deleted.", agent_id=agent_id)
    return redirect("admin:agents") if envelope["ok"] else redirect("admin:agent", agent_id)


@form_only(partial(redirect, "admin:agent"))
def close_session(request: HttpRequest, agent_id: str) -> HttpResponse:
    """Close a session of an agent."""
    form = SessionForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("Name the session to close.")
    operate(COORDINATION, request, "session_close", "The session is closed.", session_id=form.cleaned_data["session"])
    return redirect("admin:agent", agent_id)


def try_it(request: HttpRequest, agent_id: str) -> HttpResponse:
    """Show whether the agent's first call has arrived: `?since=` is the newest event when the page was opened."""
    row = _get_agent(agent_id)
    since = ArrivalFilters(request.GET).number("since")
    if since is None:
        return redirect(f"{request.path}?since={newest_event_id()}")
    doings = lines(events_by(agent_id, SHOWN_EVENTS, after=since))
    opened = Event.objects.filter(pk=since).values_list("created_at", flat=True).first()
    called = bool(doings) or (row.last_seen_at is not None and (opened is None or row.last_seen_at > opened))
    return render(request, "dashboard/try_it.html", f"Try {plain(agent_id)}", agent=row, called=called, doings=doings)


def _with_key(request: HttpRequest, agent_id: str, api_key: str) -> HttpResponse:
    """Show a key this one time, in the configuration of every client."""
    url = request.build_absolute_uri("/mcp")
    snippets = []
    for name in ORDERED:
        local_only = CLIENTS[name].url is None
        started = [*program(), "runmcp", *settings_flags()]  # a client may not have our PATH and environment
        how: dict[str, Any] = {"command": started} if local_only else {"url": url}
        made = snippet(name, key=api_key, **how)
        file = made.file and made.file.replace(APP_DATA, "<application data>")
        shown = {"name": name, "title": CLIENTS[name].title, "text": made.text, "file": file, "local": local_only}
        snippets.append(shown)
    line = f'claude mcp add -t http nexus "{url}" --header "Authorization: Bearer {api_key}"'
    return render(
        request,
        "dashboard/agent_key.html",
        f"Key of {plain(agent_id)}",
        agent=_get_agent(agent_id),
        api_key=api_key,
        snippets=snippets,
        line=line,
        since=newest_event_id(),
    )


def _get_agent(agent_id: str) -> Agent:
    return get_object_or_404(Agent.everyone, pk=agent_id)
