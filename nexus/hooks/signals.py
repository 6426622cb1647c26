"""Signals to agents after a commit in this process."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from coordination import selectors
from coordination.models import Event
from coordination.routing import is_eligible
from inbox.models import ARRIVALS
from nexus.core.config import CoreSettings
from nexus.hooks import signal_files
from nexus.hooks.pending_notices import concerned, types

IN_THE_END = datetime.max.replace(tzinfo=UTC)  # after this, every fallback is open
SIGNALLED = ARRIVALS | {"handoff.created", "handoff.expired"}


def announce(sender: Any, event: Event, **_: Any) -> None:
    """Signal the agents that got mail, may now claim a handoff, or have a notice of another app; rather too many than
    too few."""
    home = CoreSettings.current().home
    if event.type not in SIGNALLED | types() or not signal_files.anybody(home):
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
