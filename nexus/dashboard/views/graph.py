"""The live graph of agents and their messages."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest
from django.template.response import TemplateResponse

from coordination import presence
from coordination.presence import AgentState, Presence
from handoffs import selectors as handoffs_selectors
from handoffs.models import Handoff, HandoffStatus
from inbox import monitoring as inbox_monitoring
from inbox.monitoring import Flow
from nexus.control.permissions import members
from nexus.core.clock import now
from nexus.dashboard.forms import GraphFilters
from nexus.web.page import render

MODEST = 20  # up to so many messages, lines stay thin and dots small
SHOWN, LINES, CLAIMS = 80, 200, 40  # limits of a picture; the page says what it leaves out


def graph(request: HttpRequest) -> TemplateResponse:
    """Show the graph; `?workspace=` and `?hours=` filter it, `?agent=` or `?from=&to=` choose what is inspected."""
    moment = now()
    filters = GraphFilters(request.GET)
    workspace_id = filters.chosen_workspace.workspace_id if filters.chosen_workspace else None
    hours = filters.text("hours") or "24"
    flows = inbox_monitoring.flows(moment - timedelta(hours=int(hours)), moment, workspace_id=workspace_id)
    live = handoffs_selectors.live(workspace_id=workspace_id)
    states = presence.agent_states(moment, workspace_id=workspace_id)
    pool = members.names()  # the hub runs them, so they are always reachable
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
    doing = state.activity.title if state.activity and state.activity.needs_person else state.presence.label
    words = f"{doing}, {messages} messages, {unread} unread"
    words += f", {offered} handoffs offered" if offered else ""
    return words + ("; broadcasts do not reach it" if state.beyond_broadcasts else "")


def _picture(
    states: list[AgentState], flows: list[Flow], live: list[Handoff], activity: Counter[str]
) -> dict[str, Any]:
    sheet = sheet_for(len(states))
    busiest = max([MODEST, *activity.values()])
    radii = [scaled(activity[state.agent_id], busiest, 5, sheet.largest) for state in states]
    spots = dict(zip((state.agent_id for state in states), oval(sheet, radii), strict=True))
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
            "path": arc(sheet, spots[flow.sender], spots[flow.recipient]),
            "width": scaled(flow.messages, top, 0.5, 5),
        }
        for flow in drawn[:LINES]
    ]
    claims = [
        {"handoff": handoff, "path": arc(sheet, spots[handoff.from_agent_id], spots[handoff.claimed_by])}
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


WIDTH, MARGIN = 720.0, 24.0
REACH = 170.0  # of the oval to each side of the middle; labels stand outside of it
ROW, TALL_ROW, LOWEST = 26.0, 96.0, 560.0  # heights: the lowest and the highest row, and at least of all rows together
GAP = 8.0  # between a dot and its label
HEAD = 3.0  # between an arrow's head and the dot


@dataclass(frozen=True)
class Spot:
    """The position of an agent's dot and label."""

    x: float
    y: float
    radius: float
    label_x: float
    anchor: str  # SVG text-anchor


@dataclass(frozen=True)
class Sheet:
    """The size of the drawing, and the height of its rows."""

    width: float
    height: float
    row: float

    @property
    def largest(self) -> float:
        """The largest radius of a dot, so that none touches the next."""
        return min(20.0, self.row * 0.42)


def sheet_for(count: int) -> Sheet:
    """Return the sheet for so many agents."""
    rows = max(math.ceil(count / 2), 1)
    row = max(ROW, min(TALL_ROW, LOWEST / rows))
    return Sheet(WIDTH, round(rows * row + 2 * MARGIN, 1), row)


def oval(sheet: Sheet, radii: list[float]) -> list[Spot]:
    """Return positions from the top down the right side and up the left, one for each of `radii`, the sizes of the
    dots."""
    rows = max(math.ceil(len(radii) / 2), 1)
    return [
        _spot(sheet, i if i < rows else 2 * rows - 1 - i, rows, 1 if i < rows else -1, radius)
        for i, radius in enumerate(radii)
    ]


def _spot(sheet: Sheet, row: int, rows: int, side: int, radius: float) -> Spot:
    height = 2 * (row + 0.5) / rows - 1  # from -1 at the top to 1
    x = sheet.width / 2 + side * REACH * math.sqrt(1 - 0.8 * height * height)
    return Spot(
        x=round(x, 1),
        y=round(MARGIN + (row + 0.5) * sheet.row, 1),
        radius=radius,
        label_x=round(x + side * (radius + GAP), 1),
        anchor="start" if side > 0 else "end",
    )


def arc(sheet: Sheet, start: Spot, end: Spot) -> str:
    """Return a line from dot to dot as an SVG path, bent towards the middle, and to one side by its direction."""
    pull, aside = 0.45, 0.06
    middle_x, middle_y = (start.x + end.x) / 2, (start.y + end.y) / 2
    bend_x = middle_x + (sheet.width / 2 - middle_x) * pull + (end.y - start.y) * aside
    bend_y = middle_y + (sheet.height / 2 - middle_y) * pull * 0.4 - (end.x - start.x) * aside
    from_x, from_y = _edge(start, bend_x, bend_y, start.radius)
    to_x, to_y = _edge(end, bend_x, bend_y, end.radius + HEAD)
    return f"M{from_x:.1f} {from_y:.1f}Q{bend_x:.1f} {bend_y:.1f} {to_x:.1f} {to_y:.1f}"


def _edge(spot: Spot, towards_x: float, towards_y: float, away: float) -> tuple[float, float]:
    """Return the point at a distance from a dot's centre in a direction."""
    across, down = towards_x - spot.x, towards_y - spot.y
    length = math.hypot(across, down) or 1.0
    return spot.x + across / length * away, spot.y + down / length * away


def scaled(value: int, top: int, smallest: float, largest: float) -> float:
    """Return a size for a count, by its logarithm, because a few agents send most of the messages."""
    share = math.log1p(value) / math.log1p(top) if top else 0
    return round(smallest + (largest - smallest) * share, 1)
