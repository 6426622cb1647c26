"""Home: who works on what, what is stuck, what needs a person."""

from __future__ import annotations

from django.http import HttpRequest
from django.template.response import TemplateResponse

from coordination.log.selectors import recent_events
from core.clock import now
from dashboard.forms.filters import RosterFilters
from dashboard.page import render
from dashboard.pages.attention import needs
from dashboard.pages.roster import counted, roster
from dashboard.sentences import Line, lines, quiet_types
from handoffs import monitoring as handoffs_monitoring
from handoffs.models import HELD, HandoffStatus
from inbox import monitoring as inbox_monitoring
from inbox.picture import Picture

LISTED = 8
RECENT = 50  # events among which those are found that are no mere signs of life
AGENTS = 40  # rows of the roster; the list of agents has the rest


def home(request: HttpRequest) -> TemplateResponse:
    """What needs a person, the roster (`?q=` narrows it), what nobody has yet, traffic and events."""
    picture = Picture(now())
    filters = RosterFilters(request.GET)
    rows = roster(picture, filters.text("q"))
    inboxes = picture.inboxes.values()
    counts = handoffs_monitoring.counts()
    minutes = inbox_monitoring.per_minute(picture.moment)
    groups = needs(picture)
    return render(
        request,
        "home",
        "Home",
        filters=filters,
        rows=rows[:AGENTS],
        found=len(rows),
        agents=len(picture.agents),
        counted=counted(rows),
        unread=sum(inbox.unread for inbox in inboxes),
        in_flight=sum(inbox.in_flight for inbox in inboxes),
        parked=sum(inbox.parked for inbox in inboxes),
        open=counts[HandoffStatus.OPEN],
        held=sum(counts[status] for status in HELD),
        blocked=counts[HandoffStatus.BLOCKED],
        submitted=counts[HandoffStatus.SUBMITTED],
        waiting=handoffs_monitoring.waiting(picture.moment, LISTED),
        bars=_bars(minutes),
        last_hour=sum(minutes),
        busiest=max(minutes),
        groups=groups,
        needs=sum(group.count for group in groups),
        events=_latest(),
    )


def _latest() -> list[Line]:
    """The newest events as sentences, without signs of life."""
    quiet = quiet_types()
    return lines([event for event in recent_events(RECENT) if event.type not in quiet][:LISTED])


def _bars(minutes: list[int]) -> list[dict[str, int | float]]:
    """The columns of the chart, in a box of 600 by 100."""
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
