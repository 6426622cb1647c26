"""The limit on the calls of one caller that wait for their turn (docs/explanation/fairness.md)."""

from __future__ import annotations

from coordination.errors import CoordinationCode
from nexus.core.config import CoreSettings
from nexus.core.fairness import Turn, turns, when_refused
from nexus.core.operations.errors import NexusError

RETRY_SECONDS = 1


def turn_of(caller: str) -> Turn:
    """Return the turn of another call of this caller. Raises QUOTA_EXCEEDED where too many of its calls wait
    already."""
    most = CoreSettings.current().max_waiting_calls
    if turns().waiting(caller) < most:
        return Turn(turns(), caller)
    for notice in when_refused:
        notice()
    raise NexusError(
        CoordinationCode.QUOTA_EXCEEDED,
        f"{most} of your calls are waiting already (max_waiting_calls), so this one was refused. Send fewer at once; "
        f"try again in {RETRY_SECONDS} s.",
        {"retry_after_seconds": RETRY_SECONDS},
    )
