"""Mail that wakes: leased for the turn that it begins, acknowledged when that ends well, and back when it does not."""

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
AGAIN_SECONDS = 10  # after a turn that failed, and four times as long after each further one
MOST = 20  # messages of a turn


def waiting(agents: Collection[str], moment: datetime) -> set[str]:
    """Those of the agents that have mail to pull."""
    lapsed = Q(status=DeliveryStatus.DELIVERED, lease_expires_at__lt=moment)
    rows = Delivery.objects.filter(Q(status=DeliveryStatus.UNREAD) | lapsed, recipient_id__in=agents)
    return set(rows.order_by().values_list("recipient_id", flat=True).distinct())


def oldest(agent_id: str, moment: datetime) -> list[Delivery]:
    """What a pull would lease next; nothing is changed."""
    return selectors.claimable(agent_id, MOST, moment)


def pull(agent_id: str, count: int) -> list[Delivery]:
    """Lease the oldest; those that were handed out too often are parked instead, as dead letters."""
    return services.pull(agent_id=agent_id, limit=count, lease_seconds=LEASE_SECONDS)


def settled(turn: Turn) -> None:
    """Inside the transaction that ends a turn: what it handled is acknowledged, or comes again.

    After an interruption at once; after a failure later each time, for what failed may need its time.
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
    """Seconds before the next try, after so many."""
    return int(AGAIN_SECONDS * 4 ** (attempts - 1))


def renew(moment: datetime) -> None:
    """Renew the leases of the mail that turns are at, once half of them is over."""
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
