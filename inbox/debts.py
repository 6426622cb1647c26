"""Debts: mail that agents pulled and did not acknowledge."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any

from coordination.debts import Debt
from coordination.models import Agent
from inbox.models import Delivery, DeliveryStatus

MOST = 1_000


def owed(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """Yield a debt for each delivery in flight, also with an expired lease: it is delivered again, and parked in the
    end."""
    # By their lanes, and not through all that was sent.
    among: Any = Agent.everyone.values("pk") if agents is None else agents
    rows = Delivery.objects.filter(recipient__in=among, status=DeliveryStatus.DELIVERED).order_by("delivery_id")
    about = ("message_id", "message__subject", "message__from_agent_id", "delivered_at", "message__workspace_id")
    for recipient, message_id, subject, sender, since, workspace_id in rows.values_list("recipient_id", *about)[:MOST]:
        if since is not None:  # what is in flight has it
            yield Debt(recipient, "message", message_id, subject, sender, since, workspace_id, promised=False)
