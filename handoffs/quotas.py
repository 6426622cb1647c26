"""How many open handoffs an agent may have offered."""

from __future__ import annotations

from coordination.services.limits import exceeded, limit
from handoffs.models import Handoff

LATER = 60.0  # seconds: when to look again whether somebody took one


def check_open(creator: str) -> None:
    """Inside the writing transaction. Raises QUOTA_EXCEEDED where so many that an agent offered wait to be taken."""
    most = limit("open_handoffs", creator)
    if most and (used := Handoff.objects.open().filter(from_agent_id=creator).count()) >= most:
        raise exceeded(
            "open_handoffs",
            f"{used} handoffs of yours wait to be taken; an operator allows {most}. This one was not created: wait, or "
            "retract one with handoff_cancel.",
            limit=most,
            used=used,
            retry_after=LATER,
        )
