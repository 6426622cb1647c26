"""Notices of other apps for agents between their turns."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from coordination.models import Event
from nexus.core.apps import nexus_apps

if TYPE_CHECKING:
    from nexus.core.contributions import PendingNotice


@cache
def every_news() -> tuple[PendingNotice, ...]:
    """Return the notices that the apps declare."""
    return tuple(news for app in nexus_apps() for news in app.pending_notices())


@cache
def types() -> frozenset[str]:
    """Return the types of events that may cause a notice of an app."""
    return frozenset().union(*(news.events for news in every_news()))


def concerned(event: Event) -> set[str]:
    """Return the agents for whom an event causes a notice of an app."""
    declared = (news for news in every_news() if event.type in news.events)
    return {agent_id for news in declared for agent_id in news.concerned(event)}
