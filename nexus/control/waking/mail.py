"""Mail that wakes: leased for the turn that it starts, acknowledged if that ends well, and delivered again if not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta

from django.db.models import Q

from inbox import selectors, services
from inbox.models import Delivery, DeliveryStatus
from nexus.control.models import Turn, TurnStatus
from nexus.control.waking.kinds import MAIL

LEASE_SECONDS = 300  # renewed while the turn goes on
AGAIN_SECONDS = 10  # after a failed turn; four times as long after each further one
MOST = 20  # messages of a turn


def waiting(agents: Collection[str], moment: datetime) -> set[str]:
    """Return those of the agents that have mail to pull."""
    lapsed = Q(status=DeliveryStatus.DELIVERED, lease_expires_at__lt=moment)
    rows = Delivery.objects.filter(Q(status=DeliveryStatus.UNREAD) | lapsed, recipient_id__in=agents)
    return set(rows.order_by().values_list("recipient_id", flat=True).distinct())


def oldest(agent_id: str, moment: datetime) -> list[Delivery]:
    """Return what the next pull would lease, without changing anything."""
    return selectors.claimable(agent_id, MOST, moment)


def pull(agent_id: str, count: int) -> list[Delivery]:
    """Lease the oldest deliveries; those that reached the maximum of attempts are parked instead, as dead letters."""
    return services.pull(agent_id=agent_id, limit=count, lease_seconds=LEASE_SECONDS)


def settled(turn: Turn) -> None:
    """Acknowledge a turn's mail if it ended well, otherwise end its leases. Call it inside the transaction that ends
    the turn.

    After an interruption the mail is available at once; after a failure later each time, because the cause may need
    time to go away.
    """
    agent_id, message_ids = turn.agent.agent_id, _of(turn)
    if not message_ids:
        return
    if turn.status == TurnStatus.DONE:
        services.acknowledge(agent_id=agent_id, message_ids=message_ids)
        return
    for delivery in Delivery.objects.of(agent_id).filter(message_id__in=message_ids):
        later = 0 if turn.status == TurnStatus.INTERRUPTED else again_in(delivery.attempts)
        services.end_leases_in(agent_id=agent_id, message_ids=[delivery.message_id], seconds=later)


def again_in(attempts: int) -> int:
    """Return the seconds until the next attempt, after so many."""
    return int(AGAIN_SECONDS * 4 ** (attempts - 1))


def renew(moment: datetime) -> None:
    """Renew the leases of the mail of open turns once half of the time is over."""
    soon = moment + timedelta(seconds=LEASE_SECONDS / 2)
    at_work: dict[str, list[str]] = defaultdict(list)
    for turn in Turn.objects.open().filter(depth__gt=0).select_related("agent"):
        at_work[turn.agent.agent_id] += _of(turn)
    for agent_id, message_ids in at_work.items():
        ending = Delivery.objects.of(agent_id).leased(moment).filter(message_id__in=message_ids)
        if message_ids and ending.filter(lease_expires_at__lt=soon).exists():
            services.end_leases_in(agent_id=agent_id, message_ids=message_ids, seconds=LEASE_SECONDS)


def _of(turn: Turn) -> list[str]:
    return list(turn.wakes.filter(kind=MAIL).values_list("item", flat=True))
