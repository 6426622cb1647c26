"""Signals to agents after a commit in this process, and the notices of other apps that an event may cause."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from coordination import selectors
from coordination.models import Event
from coordination.routing import is_eligible
from inbox.models import ARRIVALS
from nexus.core.apps import nexus_apps
from nexus.core.config import CoreSettings
from nexus.hooks import signal_files

if TYPE_CHECKING:
    from nexus.core.contributions import PendingNotice


@cache
def notice_kinds() -> tuple[PendingNotice, ...]:
    """Return the notices that the apps declare."""
    return tuple(news for app in nexus_apps() for news in app.pending_notices())


@cache
def notice_types() -> frozenset[str]:
    """Return the types of events that may cause a notice of an app."""
    return frozenset().union(*(news.events for news in notice_kinds()))


def concerned(event: Event) -> set[str]:
    """Return the agents for whom an event causes a notice of an app."""
    declared = (news for news in notice_kinds() if event.type in news.events)
    return {agent_id for news in declared for agent_id in news.concerned(event)}


IN_THE_END = datetime.max.replace(tzinfo=UTC)  # after this, every fallback is open
SIGNALLED = ARRIVALS | {"handoff.created", "handoff.unblocked", "handoff.expired"}


def announce(sender: Any, event: Event, **_: Any) -> None:
    """Signal the agents that got mail, may now claim a handoff, or have a notice of another app; rather too many than
    too few."""
    home = CoreSettings.current().home
    if event.type == "agent.updated":  # it may not be muted any more
        signal_files.send(home, event.payload["agent_id"])
    if event.type not in SIGNALLED | notice_types() or not signal_files.anybody(home):
        return
    for agent_id in concerned(event):
        signal_files.send(home, agent_id)
    if event.type not in SIGNALLED:
        return
    if event.type in ARRIVALS:
        for recipient in event.payload["recipients"]:
            signal_files.send(home, recipient)
    else:
        for agent in selectors.profiles():
            if is_eligible(event.target, agent, created_at=event.created_at, now=IN_THE_END):
                signal_files.send(home, agent.agent_id)
