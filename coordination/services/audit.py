"""The operators' trail: what they do lands in the event log with who did it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordination.log.emit import emit
from coordination.models import Event, Stream
from coordination.routing import Strategy, Target, Visibility

NOBODY: Target = {"strategy": Strategy.MIXED.value, "rules": []}  # a union of nothing: operators see it, no agent does


def record(operator: str, type: str, moment: datetime, **payload: Any) -> Event:
    """Append what an operator did, inside the transaction of the deed. Keep secrets out of `payload`."""
    return emit(
        workspace_id=None,
        stream=Stream.AGENT,
        type=type,
        actor=None,
        payload={**payload, "operator": operator},
        moment=moment,
        visibility=Visibility.PRIVATE,
        target=NOBODY,
    )
