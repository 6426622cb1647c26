"""Agents at work: the roster of Home, and how an agent's client connects with its key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import get_script_prefix, reverse

from coordination import presence
from coordination.models import Workspace
from coordination.presence import AgentState, Presence
from handoffs.models import Handoff, HandoffStatus
from inbox.monitoring import Inbox, Picture
from nexus.control.agents import monitoring
from nexus.control.permissions import members
from nexus.control.selectors import names_in
from nexus.core.coding_clients import APP_DATA, CLIENTS
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.hooks.client_commands import program, settings_flags
from nexus.hooks.client_entries import snippet
from nexus.planning.models import Task, TaskStatus
from nexus.web.page import render
from nexus.web.templatetags.nexus import plain


def key_page(request: HttpRequest, data: Mapping[str, Any]) -> HttpResponse:
    """Show an agent's new key this one time, in the configuration of every client."""
    agent_id, api_key = data["agent_id"], data["api_key"]
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
        agent_id=agent_id,
        api_key=api_key,
        snippets=snippets,
        line=line,
    )


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
