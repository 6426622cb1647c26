"""Home: a picture of now."""

from __future__ import annotations

from collections import Counter

from django.http import HttpRequest
from django.template.response import TemplateResponse

from coordination.log.selectors import recent_events
from core.clock import now
from dashboard.page import render
from dashboard.pages.attention import needs
from handoffs import monitoring as handoffs_monitoring
from handoffs.models import HandoffStatus
from inbox import monitoring as inbox_monitoring
from inbox.picture import Picture

LISTED = 8


def home(request: HttpRequest) -> TemplateResponse:
    """Agents by presence, traffic of the last hour, lanes, live handoffs, and what needs a person."""
    moment = now()
    picture = Picture(moment)
    agents, inboxes = picture.agents, picture.inboxes
    minutes = inbox_monitoring.per_minute(moment)
    live = handoffs_monitoring.live()
    groups = needs(picture)
    return render(
        request,
        "home",
        "Home",
        presence=Counter(state.presence.value for state in agents),
        agents=len(agents),
        unread=sum(inbox.unread for inbox in inboxes.values()),
        in_flight=sum(inbox.in_flight for inbox in inboxes.values()),
        parked=sum(inbox.parked for inbox in inboxes.values()),
        bars=_bars(minutes),
        last_hour=sum(minutes),
        busiest=max(minutes),
        live=live[:LISTED],
        open_handoffs=sum(handoff.status == HandoffStatus.OPEN for handoff in live),
        claimed_handoffs=sum(handoff.status == HandoffStatus.CLAIMED for handoff in live),
        groups=groups,
        needs=sum(group.count for group in groups),
        events=recent_events(LISTED),
    )


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
