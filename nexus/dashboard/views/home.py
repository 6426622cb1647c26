"""Home: who works on what, what is stuck, what needs an operator."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest
from django.template.response import TemplateResponse

from coordination.log.lines import Line, without_quiet, without_repeated_acts
from coordination.log.selectors import recent_events
from handoffs import monitoring as handoffs_monitoring
from handoffs.models import HELD, LIVE, HandoffStatus
from inbox import monitoring as inbox_monitoring
from inbox.monitoring import Picture
from nexus.control import monitoring as pool_monitoring
from nexus.control.config import ControlSettings
from nexus.core.clock import now
from nexus.dashboard.forms import RosterFilters
from nexus.dashboard.views.attention import needs
from nexus.dashboard.views.roster import Row, counted, roster
from nexus.web.page import render

LISTED = 8
RECENT = 50  # events searched for those that are not signs of life
AGENTS = 40  # rows of the roster; the list of agents has the rest


def home(request: HttpRequest) -> TemplateResponse:
    """Show what needs an operator, the roster (`?q=` filters it), unclaimed handoffs, traffic and events."""
    picture = Picture(now())
    filters = RosterFilters(request.GET)
    rows = roster(picture, filters.text("q"))
    minutes = inbox_monitoring.per_minute(picture.moment)
    groups = needs(picture)
    return render(
        request,
        "dashboard/home.html",
        "Home",
        filters=filters,
        rows=rows[:AGENTS],
        found=len(rows),
        agents=len(picture.agents),
        glance=_glance(rows, picture),
        waiting=handoffs_monitoring.waiting(picture.moment, LISTED),
        bars=_bars(minutes),
        last_hour=sum(minutes),
        busiest=max(minutes),
        groups=groups,
        needs=sum(group.count for group in groups),
        events=_latest(),
    )


@dataclass(frozen=True)
class Figure:
    """A number of things, and the page that lists them."""

    word: str
    count: int
    page: str
    query: str = ""
    seldom: bool = False  # left out if it is 0


def _glance(rows: list[Row], picture: Picture) -> list[tuple[str, list[Figure]]]:
    """Return the numbers of things, by kind."""
    agents, handoffs, inboxes = counted(rows), handoffs_monitoring.counts(LIVE), list(picture.inboxes.values())
    groups = {
        "Agents": [Figure(word, count, "agents", seldom=word == "away") for word, count in agents.items()],
        "Handoffs": [
            Figure("open", handoffs[HandoffStatus.OPEN], "board"),
            Figure("held", sum(handoffs[status] for status in HELD), "board"),
            Figure("blocked", handoffs[HandoffStatus.BLOCKED], "board"),
            Figure("submitted", handoffs[HandoffStatus.SUBMITTED], "board", seldom=True),
        ],
        "Mail": [
            Figure("unread", sum(inbox.unread for inbox in inboxes), "mail", "?lane=unread"),
            Figure("in flight", sum(inbox.in_flight for inbox in inboxes), "mail", "?lane=delivered", seldom=True),
            Figure("parked", sum(inbox.parked for inbox in inboxes), "mail", "?lane=parked", seldom=True),
        ],
    }
    if ControlSettings.current().control:
        pool = pool_monitoring.counts()
        groups["Pool"] = [
            Figure("living", pool.agents, "pool"),
            Figure("at a turn", pool.running, "pool"),
            Figure("waiting", pool.waiting, "pool", seldom=True),
        ]
    return [(title, [it for it in figures if it.count or not it.seldom]) for title, figures in groups.items()]


def _latest() -> list[Line]:
    """Return the newest events as sentences, without signs of life."""
    return without_repeated_acts(without_quiet(recent_events(RECENT)))[:LISTED]


def _bars(minutes: list[int]) -> list[dict[str, int | float]]:
    """Return the columns of the chart, in a box of 600 by 100."""
    top = max(*minutes, 1)
    width = 600 / len(minutes)
    return [
        {
            "x": round(i * width, 1),
            "width": round(width - 2, 1),
            "height": round(max(count / top * 100, 1.5), 1),
            "y": round(100 - max(count / top * 100, 1.5), 1),
            "count": count,
            "ago": len(minutes) - 1 - i,
        }
        for i, count in enumerate(minutes)
    ]
