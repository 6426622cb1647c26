"""Agents and keys: the team, each agent's profile and limits, and how its client connects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from functools import partial
from itertools import islice
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import get_script_prefix, reverse
from django.views.decorators.cache import never_cache

from coordination import debts, presence
from coordination.forms import KeyForm, LimitsForm, NewAgentForm, ProfileForm, SessionForm, limits_of, profile_of
from coordination.log.selectors import events_by, newest_event_id
from coordination.log.sentences import lines, without_quiet
from coordination.models import Agent, AgentKey, Event, LimitScope, Session, Workspace
from coordination.presence import AgentState, Presence
from coordination.routing import capability_set
from coordination.toolset import COORDINATION
from handoffs import selectors as handoffs_selectors
from handoffs.models import Handoff, HandoffStatus
from inbox import monitoring as inbox_monitoring
from inbox.monitoring import Inbox, Picture
from nexus.control.agents import monitoring
from nexus.control.permissions import members
from nexus.control.selectors import names_in
from nexus.core.clock import now
from nexus.core.coding_clients import APP_DATA, CLIENTS
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.dashboard.forms import AgentFilters, ArrivalFilters
from nexus.dashboard.views.timeline import day_of
from nexus.hooks.client_commands import program, settings_flags
from nexus.hooks.client_entries import snippet
from nexus.planning.models import Task, TaskStatus
from nexus.web.page import form_only, operate, posted, render
from nexus.web.templatetags.nexus import plain

SHOWN_SESSIONS, SHOWN_EVENTS, SHOWN_HANDOFFS = 10, 10, 10
PAGE = 100  # agents
EXAMINED_EVENTS = 100  # searched for events that are not signs of life
# The page of a debt, by kind.
DEBTS = {  # the page of each kind
    "handoff": "handoffs_handoff_change",
    "verdict": "handoffs_handoff_change",
    "message": "inbox_message_change",
    "task": "planning_task_change",
    "task_verdict": "planning_task_change",
    "question": "files_reservation_change",
}


def agents(request: HttpRequest) -> TemplateResponse:
    """Show agents with presence, key and inbox, by id; `?page=` pages, `?q=` filters by id, role or capability,
    `?workspace=` by sessions there."""
    moment = now()
    filters = AgentFilters(request.GET)
    words, page = filters.text("q").lower(), max(filters.number("page") or 1, 1)
    shown, more = _page(words, page, filters.chosen_workspace)
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


def _page(words: str, page: int, workspace: Workspace | None) -> tuple[list[Agent], bool]:
    """Return the agents on a page, and whether there are more."""
    start = (page - 1) * PAGE
    rows = Agent.objects.order_by("agent_id")
    if workspace is not None:
        rows = rows.filter(pk__in=presence.agents_in(workspace.pk))
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
            COORDINATION, request, "limits_update", "The limits are saved.", form, agent_id=agent_id, **form.arguments()
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
        owes=[(debt, _page_of(debt)) for debt in debts.owed_by(agent_id)],
        works=works(moment, agent_id)[agent_id],
        offered=handoffs_selectors.offered_by(agent_id, SHOWN_HANDOFFS),
        doings=lines(without_quiet(events_by(agent_id, EXAMINED_EVENTS))[:SHOWN_EVENTS]),
        day=day_of(agent_id, moment),
        is_muted=row.muted_until is not None and row.muted_until > moment,
    )


def _page_of(debt: debts.Debt) -> str:
    return reverse(f"admin:{DEBTS[debt.kind]}", args=[debt.identifier])


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
    url = request.build_absolute_uri(f"{get_script_prefix()}mcp")
    snippets = []
    for name, client in CLIENTS.items():
        local_only = client.url is None
        started = [*program(), "runmcp", *settings_flags()]  # a client may not have our PATH and environment
        how: dict[str, Any] = {"command": started} if local_only else {"url": url}
        made = snippet(name, key=api_key, **how)
        file = made.file and made.file.replace(APP_DATA, "<application data>")
        shown = {"name": name, "title": client.title, "text": made.text, "file": file, "local": local_only}
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


LOOKED_AT = 2_000  # handoffs, and planned tasks, that are read, to limit the cost of a page
DOING = 3  # things that an agent's row names


class Standing(IntEnum):
    """The order of agents' rows: the lower, the more urgent."""

    STUCK = 0
    WAITS = 1  # for a person
    AT_WORK = 2
    HOLDS = 3
    HAS_MAIL = 4
    IDLE = 5
    AWAY = 6


@dataclass(frozen=True)
class Doing:
    """One thing that an agent works on."""

    title: str
    page: str
    key: str
    state: str  # a handoff's, or `lapsed`; a planned task is in progress
    until: datetime | None = None  # the end of its lease
    why: str = ""  # why it is blocked

    @property
    def url(self) -> str:
        return reverse(f"admin:{self.page}", args=[self.key])


@dataclass(frozen=True)
class AgentRow:
    """An agent, and what it works on."""

    state: AgentState
    inbox: Inbox
    doing: list[Doing]
    in_pool: bool = False  # the hub runs it, so it is always reachable

    @property
    def shown(self) -> list[Doing]:
        return self.doing[:DOING]

    @property
    def more(self) -> int:
        return max(len(self.doing) - DOING, 0)

    @property
    def standing(self) -> Standing:
        states = {doing.state for doing in self.doing}
        away = self.state.presence is Presence.OFFLINE and not self.in_pool
        if states & {HandoffStatus.BLOCKED, "lapsed"} or (states and away):
            return Standing.STUCK
        if self.state.activity and self.state.activity.needs_person:
            return Standing.WAITS
        if states:
            return Standing.AT_WORK if HandoffStatus.IN_PROGRESS in states else Standing.HOLDS
        if self.inbox.unread or self.inbox.in_flight:
            return Standing.HAS_MAIL
        return Standing.AWAY if away else Standing.IDLE


def roster(picture: Picture, words: str = "", workspace: Workspace | None = None) -> list[AgentRow]:
    """Return every agent, the most urgent first, without the operators' identity; with words, those whose id, role or
    titles of work contain them; with a workspace, those that have, or had, a session there, or work there for the
    pool."""
    doing = works(picture.moment)
    pool = members.names()
    rows = [
        AgentRow(
            state,
            picture.inboxes.get(state.agent_id, Inbox()),
            doing[state.agent_id],
            in_pool=state.agent_id in pool,
        )
        for state in picture.agents
        if state.agent_id != OPERATOR_AGENT
    ]
    if workspace is not None:
        there = {*presence.agents_in(workspace.pk), *names_in(workspace)}
        rows = [row for row in rows if row.state.agent_id in there]
    if words:
        rows = [row for row in rows if words.lower() in _words_of(row)]
    return sorted(rows, key=lambda row: (row.standing, -len(row.doing), -row.inbox.unread, row.state.agent_id))


def works(moment: datetime, agent_id: str | None = None) -> Mapping[str, list[Doing]]:
    """Return what each agent works on, the most urgent first: turns, then handoffs, then planned tasks. With
    `agent_id`, at least that agent's."""
    doing: dict[str, list[Doing]] = defaultdict(list)
    for name, thing in [*_turns(), *_holdings(moment, agent_id), *_planned()]:
        doing[name].append(thing)
    return doing


def _words_of(row: AgentRow) -> str:
    return " ".join([row.state.agent_id, row.state.agent.role or "", *(doing.title for doing in row.doing)]).lower()


def _turns() -> Iterator[tuple[str, Doing]]:
    """Yield the running turn of each pool agent."""
    for name, pool_agent_id, glimpse in monitoring.running(LOOKED_AT):
        yield name, Doing(f"turn: {glimpse}", "pool_agent", pool_agent_id, HandoffStatus.IN_PROGRESS)


def _holdings(moment: datetime, agent_id: str | None) -> Iterator[tuple[str, Doing]]:
    """Yield the handoffs of each holder: those in progress first, then the lease that ends soonest."""
    held = Handoff.objects.held().exclude(claimed_by=None).order_by("lease_expires_at")
    if agent_id is not None:
        held = held.filter(claimed_by=agent_id)
    order = (HandoffStatus.IN_PROGRESS, HandoffStatus.BLOCKED, HandoffStatus.CLAIMED)
    columns = ("claimed_by", "handoff_id", "title", "status", "lease_expires_at", "blocked_reason")
    rows = sorted(held.values_list(*columns)[:LOOKED_AT], key=lambda row: order.index(row[3]))
    for holder, handoff_id, title, status, until, why in rows:
        state = "lapsed" if until < moment else status
        yield str(holder), Doing(title, "handoffs_handoff_change", handoff_id, state, until, why or "")


def _planned() -> Iterator[tuple[str, Doing]]:
    """Yield each owner's planned tasks in progress that have no handoff."""
    tasks = Task.objects.on_their_own(TaskStatus.IN_PROGRESS).order_by("-updated_at")
    for key, title, agent_id, owner in tasks.values_list("task_key", "title", "owner_agent_id", "owner")[:LOOKED_AT]:
        doing = Doing(title[:200], "planning_task_change", key, HandoffStatus.IN_PROGRESS)
        for name in filter(None, dict.fromkeys((agent_id, owner))):
            yield name, doing


def count_states(rows: list[AgentRow]) -> Mapping[str, int]:
    """Count the agents that are stuck, that wait for a person, at work, and free."""
    found = [row.standing for row in rows]
    return {
        "stuck": found.count(Standing.STUCK),
        "waiting for you": found.count(Standing.WAITS),
        "at work": found.count(Standing.AT_WORK) + found.count(Standing.HOLDS),
        "free": found.count(Standing.IDLE) + found.count(Standing.HAS_MAIL),
        "away": found.count(Standing.AWAY),
    }
