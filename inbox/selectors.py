"""The reads of the inbox. None of them writes: a lapsed lease is shown as unread, not swept."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from django.db.models import Count, Q
from typing_extensions import TypedDict

from core import cursors
from core.operations.errors import invalid, not_found
from inbox.models import Delivery, DeliveryQuerySet, DeliveryStatus, Message


def claimable(agent_id: str, limit: int, moment: datetime) -> list[Delivery]:
    """The oldest deliveries that a pull may claim, with their messages."""
    mine = Delivery.objects.of(agent_id)
    return _oldest([mine.unread(), mine.lapsed(moment)], limit)


def pending(agent_id: str, limit: int, *, include_parked: bool) -> list[Delivery]:
    """The oldest deliveries not yet acknowledged, with their messages."""
    mine = Delivery.objects.of(agent_id)
    lanes = [mine.unread(), mine.filter(status=DeliveryStatus.DELIVERED)]
    if include_parked:
        lanes.append(mine.filter(status=DeliveryStatus.PARKED))
    return _oldest(lanes, limit)


def _oldest(lanes: list[DeliveryQuerySet], limit: int) -> list[Delivery]:
    """The oldest of several lanes: each is read along its index, whatever its length, and the heads are merged."""
    heads = [row for lane in lanes for row in lane.select_related("message").order_by("delivery_id")[:limit]]
    return sorted(heads, key=lambda row: row.delivery_id)[:limit]


class LaneSizes(TypedDict):
    unread: int
    in_flight: int
    read: int


def lane_sizes(agent_id: str, moment: datetime) -> LaneSizes:
    """How much lies in each lane, a lapsed lease counted as unread."""
    in_flight = Q(status=DeliveryStatus.DELIVERED, lease_expires_at__gte=moment)
    lapsed = Q(status=DeliveryStatus.DELIVERED, lease_expires_at__lt=moment)
    counted = Delivery.objects.of(agent_id).aggregate(
        unread=Count(
            "pk",
            filter=Q(status=DeliveryStatus.UNREAD) | lapsed,
        ),
        in_flight=Count("pk", filter=in_flight),
        read=Count("pk", filter=Q(status=DeliveryStatus.READ)),
    )
    return {"unread": counted["unread"], "in_flight": counted["in_flight"], "read": counted["read"]}


class History(NamedTuple):
    """A page of acknowledged deliveries, newest first, and the cursor of the next one."""

    deliveries: list[Delivery]
    next_cursor: str | None


def history(agent_id: str, limit: int, cursor: str | None) -> History:
    """A page of the read archive (contract: inbox_history). Raises VALIDATION_ERROR for a cursor not of its making."""
    rows = Delivery.objects.of(agent_id).filter(status=DeliveryStatus.READ).select_related("message")
    if cursor is not None:
        read_at, delivery_id = _decode(cursor)
        rows = rows.filter(read_at__lte=read_at).exclude(read_at=read_at, delivery_id__gte=delivery_id)
    page = list(rows.order_by("-read_at", "-delivery_id")[: limit + 1])
    more = len(page) > limit
    return History(page[:limit], _encode(page[limit - 1]) if more else None)


def _encode(last: Delivery) -> str:
    assert last.read_at is not None
    return cursors.encode(last.read_at, last.delivery_id)


def _decode(cursor: str) -> tuple[datetime, str]:
    try:
        read_at, delivery_id = cursors.decode(cursor, datetime, str)
        return read_at, delivery_id
    except ValueError:
        raise invalid(
            "cursor is not one of inbox_history (numeric offsets are no longer taken): "
            "pass next_cursor back as it came, or leave it out to start at the newest.",
            field="cursor",
        ) from None


def deliveries_of(message_id: str) -> tuple[Message, list[Delivery]]:
    """A message and its deliveries by recipient. Raises NOT_FOUND."""
    message = Message.objects.filter(pk=message_id).first()
    if message is None:
        raise not_found("message", message_id)
    return message, list(message.deliveries.order_by("recipient_id"))
