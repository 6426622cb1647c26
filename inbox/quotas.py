"""Limits on what an agent sends and an inbox holds. They are checked inside the writing transaction, so that two calls
cannot exceed one together. Notices of Nexus are never refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Count

from coordination.ids import id_floor
from coordination.services.limits import exceeded, limit
from inbox.models import Delivery, DeliveryStatus, Message

MINUTE = timedelta(minutes=1)
LATER = 60.0  # seconds: when to look again whether an inbox has room


def check_pace(sender: str, moment: datetime) -> None:
    """Check how much an agent sent in the minute before `moment`. Raises QUOTA_EXCEEDED."""
    most = limit("messages_per_minute", sender)
    if not most:
        return
    # Up to a minute ahead: that of calls at once. What is later is from before the clock was set back.
    within = {"created_at__gt": moment - MINUTE, "created_at__lt": moment + MINUTE}
    sent = Message.objects.filter(from_agent_id=sender, pk__gte=id_floor("msg", moment - MINUTE), **within)
    times = list(sent.order_by("-pk").values_list("created_at", flat=True)[:most])
    if len(times) == most:
        wait = (min(times) + MINUTE - moment).total_seconds()
        raise exceeded(
            "messages_per_minute",
            f"You sent {most} messages within a minute, as many as an operator allows. This one was not sent.",
            limit=most,
            used=most,
            retry_after=wait,
        )


def check_breadth(sender: str, recipients: Sequence[str]) -> None:
    """Check how many recipients a message has. Raises QUOTA_EXCEEDED."""
    most = limit("recipients", sender)
    if most and len(recipients) > most:
        raise exceeded(
            "recipients",
            f"This message is for {len(recipients)} agents; an operator allows {most}. Choose a narrower target.",
            limit=most,
            used=len(recipients),
            retry_after=None,
        )


def with_room(recipients: Sequence[str], moment: datetime) -> tuple[list[str], list[str]]:
    """Return the recipients whose inbox has room for a message, and those whose is full. Raises QUOTA_EXCEEDED where
    all are full."""
    limits = {agent_id: most for agent_id in recipients if (most := limit("unread", agent_id))}
    if not limits:
        return list(recipients), []
    unread = Delivery.objects.filter(recipient_id__in=limits).in_lane(DeliveryStatus.UNREAD, moment)
    counts = dict(unread.values_list("recipient_id").annotate(Count("pk")).order_by())
    full = [agent_id for agent_id in limits if counts.get(agent_id, 0) >= limits[agent_id]]
    if len(full) == len(recipients):
        raise exceeded(
            "unread",
            f"No inbox that this message is for takes more for now, such as that of {full[0]!r}: it was not sent. "
            "There is room again once mail is read.",
            limit=limits[full[0]],
            used=counts[full[0]],
            retry_after=LATER,
        )
    return [agent_id for agent_id in recipients if agent_id not in full], full
