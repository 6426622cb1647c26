"""The live graph of agents and their messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.template.response import TemplateResponse

from coordination import presence
from coordination.presence import AgentState, Presence
from handoffs import monitoring as handoffs_monitoring
from handoffs.models import Handoff, HandoffStatus
from inbox import monitoring as inbox_monitoring
from inbox.monitoring import Flow
from nexus.control import members
from nexus.core.clock import now
from nexus.dashboard.forms import GraphFilters
from nexus.web import chart
from nexus.web.page import render

MODEST = 20  # up to so many messages, lines stay thin and dots small
SHOWN, LINES, CLAIMS = 80, 200, 40  # limits of a picture; the page says what it leaves out


def graph(request: HttpRequest) -> TemplateResponse:
    """Show the graph; `?workspace=` and `?hours=` filter it, `?agent=` or `?from=&to=` choose what is inspected."""
    moment = now()
    filters = GraphFilters(request.GET)
    workspace_id = filters.place.workspace_id if filters.place else None
    hours = filters.text("hours") or "24"
    flows = inbox_monitoring.flows(moment - timedelta(hours=int(hours)), moment, workspace_id=workspace_id)
    live = handoffs_monitoring.live(workspace_id=workspace_id)
    states = presence.agent_states(moment, workspace_id=workspace_id)
    if not workspace_id:  # the hub runs them, so they are always reachable
        pool = members.names()
        states = [replace(state, presence=Presence.PRESENT) if state.agent_id in pool else state for state in states]
    activity: Counter[str] = Counter()
    for flow in flows:
        activity[flow.sender] += flow.messages
        activity[flow.recipient] += flow.messages
    shown = sorted(states, key=lambda state: (state.presence is Presence.OFFLINE, -activity[state.agent_id]))[:SHOWN]
    picture = _picture(sorted(shown, key=lambda state: state.agent_id), flows, live, activity)
    return render(
        request,
        "dashboard/graph.html",
        "Graph",
        **picture,
        filters=filters,
        here=filters.query("agent", "from", "to"),
        left_out=len(states) - len(shown),
        near=_near(request, flows, live),
        at_ceiling=sum(flow.messages for flow in flows) >= inbox_monitoring.NEWEST,
        inspected=_inspected(request, states, flows, live, moment),
    )


def _label(state: AgentState, messages: int, unread: int, offered: int) -> str:
    """Describe an agent in words, for tooltips and screen readers."""
    words = f"{state.presence}, {messages} messages, {unread} unread"
    words += f", {offered} handoffs offered" if offered else ""
    return words + ("; broadcasts do not reach it" if state.beyond_broadcasts else "")


def _picture(
    states: list[AgentState], flows: list[Flow], live: list[Handoff], activity: Counter[str]
) -> dict[str, Any]:
    sheet = chart.sheet_for(len(states))
    busiest = max([MODEST, *activity.values()])
    radii = [chart.scaled(activity[state.agent_id], busiest, 5, sheet.largest) for state in states]
    spots = dict(zip((state.agent_id for state in states), chart.oval(sheet, radii), strict=True))
    offered = Counter(handoff.from_agent_id for handoff in live if handoff.status == HandoffStatus.OPEN)
    unread: Counter[str] = Counter()
    for flow in flows:
        unread[flow.recipient] += flow.unread
    nodes = [
        {
            "id": state.agent_id,
            "state": state,
            "spot": spots[state.agent_id],
            "activity": activity[state.agent_id],
            "unread": unread[state.agent_id],
            "offered": offered[state.agent_id],
            "told": _label(state, activity[state.agent_id], unread[state.agent_id], offered[state.agent_id]),
        }
        for state in states
    ]
    top = max(MODEST, flows[0].messages if flows else 0)
    drawn = [
        flow for flow in flows if flow.sender in spots and flow.recipient in spots and flow.sender != flow.recipient
    ]
    edges = [
        {
            "flow": flow,
            "path": chart.arc(sheet, spots[flow.sender], spots[flow.recipient]),
            "width": chart.scaled(flow.messages, top, 0.5, 5),
        }
        for flow in drawn[:LINES]
    ]
    claims = [
        {"handoff": handoff, "path": chart.arc(sheet, spots[handoff.from_agent_id], spots[handoff.claimed_by])}
        for handoff in live
        if handoff.claimed_by in spots
        and handoff.from_agent_id in spots
        and handoff.claimed_by != handoff.from_agent_id
    ]
    return {"sheet": sheet, "nodes": nodes, "edges": edges, "claims": claims[:CLAIMS]}


def _near(request: HttpRequest, flows: list[Flow], live: list[Handoff]) -> set[str]:
    """Return the chosen agent and its neighbours, or the two ends of the chosen line; empty if nothing is chosen."""
    sender, recipient = request.GET.get("from"), request.GET.get("to")
    if sender and recipient:
        return {sender, recipient}
    agent_id = request.GET.get("agent")
    if not agent_id:
        return set()
    pairs = [(flow.sender, flow.recipient) for flow in flows]
    pairs += [(handoff.from_agent_id, handoff.claimed_by) for handoff in live if handoff.claimed_by]
    return {agent_id, *(end for pair in pairs if agent_id in pair for end in pair)}


def _inspected(
    request: HttpRequest, states: list[AgentState], flows: list[Flow], live: list[Handoff], moment: datetime
) -> dict[str, Any] | None:
    agent_id = request.GET.get("agent")
    if agent_id:
        state = next((state for state in states if state.agent_id == agent_id), None)
        if state is None:
            return None
        return {
            "kind": "agent",
            "state": state,
            "inbox": inbox_monitoring.inbox_of(agent_id, moment),
            "sent": [flow for flow in flows if flow.sender == agent_id][:8],
            "received": [flow for flow in flows if flow.recipient == agent_id][:8],
            "handoffs": [row for row in live if agent_id in (row.from_agent_id, row.claimed_by)][:8],
        }
    sender, recipient = request.GET.get("from"), request.GET.get("to")
    if sender and recipient:
        return {
            "kind": "edge",
            "sender": sender,
            "recipient": recipient,
            "deliveries": inbox_monitoring.between(sender, recipient, limit=12),
        }
    return None
