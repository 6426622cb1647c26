"""Mail that agents pulled and did not acknowledge."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from coordination.debts import Debt
from inbox.models import Delivery, DeliveryStatus

MOST = 1_000


def owed(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """In flight, also where the lease has lapsed; it comes again by itself, and in the end to the dead letters."""
    rows = Delivery.objects.filter(status=DeliveryStatus.DELIVERED).select_related("message").defer("message__body")
    if agents is not None:
        rows = rows.filter(recipient_id__in=agents)
    for row in rows.order_by("delivery_id")[:MOST]:
        message = row.message
        yield Debt(
            row.recipient_id,
            "message",
            message.message_id,
            message.subject,
            message.from_agent_id,
            row.delivered_at or row.created_at,
            message.workspace_id,
            promised=False,
        )
