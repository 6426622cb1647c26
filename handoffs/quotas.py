"""The limit on open handoffs for each creator."""

from __future__ import annotations

from datetime import datetime

from coordination.services.limits import exceeded, limit
from handoffs.models import Handoff, HandoffStatus

LATER = 60.0  # seconds: when to look again whether somebody took one


def check_open(creator: str, moment: datetime) -> None:
    """Check the limit on a creator's open handoffs, inside the writing transaction. Raises QUOTA_EXCEEDED."""
    most = limit("open_handoffs", creator)
    if not most:
        return  # before the query, which costs a call a fifth even where it is only put together
    open_ones = Handoff.objects.in_state(HandoffStatus.OPEN, moment).filter(from_agent_id=creator)
    if (used := open_ones.count()) >= most:
        raise exceeded(
            "open_handoffs",
            f"{used} handoffs of yours wait to be taken; an operator allows {most}. This one was not created: wait, or "
            "retract one with handoff_cancel.",
            limit=most,
            used=used,
            retry_after=LATER,
        )
