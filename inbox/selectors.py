"""The reads of the inbox. None of them writes: an expired lease is shown as unread, and not swept."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from typing_extensions import TypedDict

from coordination.debts import Debt
from coordination.models import Agent
from coordination.selectors import agent_hint
from inbox import sql
from inbox.models import Delivery, DeliveryStatus, Message
from nexus.core.operations import pages
from nexus.core.operations.errors import invalid, not_found
from nexus.core.operations.replies import hinted
from nexus.core.size_limits import fitting


def claimable(agent_id: str, limit: int, moment: datetime) -> list[Delivery]:
    """Return the oldest deliveries that a pull may claim, with their messages; fewer where these are large."""
    rows = sql.claimable(agent_id=agent_id, limit=limit, moment=moment)
    for delivery, message, workspace in rows:
        delivery.message, message.workspace = message, workspace
    return _oldest([delivery for delivery, _, _ in rows], limit)


def pending(agent_id: str, limit: int, *, include_parked: bool) -> list[Delivery]:
    """Return the oldest deliveries not yet acknowledged, with their messages; fewer where these are large."""
    mine = Delivery.objects.of(agent_id)
    queues = [mine.unread(), mine.filter(status=DeliveryStatus.DELIVERED)]
    if include_parked:
        queues.append(mine.filter(status=DeliveryStatus.PARKED))
    heads = [
        row for queue in queues for row in queue.select_related("message__workspace").order_by("delivery_id")[:limit]
    ]
    return _oldest(heads, limit)


def _oldest(heads: list[Delivery], limit: int) -> list[Delivery]:
    """Merge the heads of several queues into the oldest deliveries. Each head was read along its index."""
    return fitting(sorted(heads, key=lambda row: row.delivery_id)[:limit], _length)


def _length(delivery: Delivery) -> int:
    return len(delivery.message.subject) + len(delivery.message.body)


class LaneSizes(TypedDict):
    unread: int
    in_flight: int
    read: int


def lane_sizes(agent_id: str, moment: datetime) -> LaneSizes:
    """Return the number of deliveries of each status; an expired lease counts as unread."""
    sizes = sql.sizes.first(agent_id=agent_id, moment=moment)
    unread, lapsed, in_flight, read = sizes or (0, 0, 0, 0)
    data: LaneSizes = {"unread": unread + lapsed, "in_flight": in_flight, "read": read}
    return data if sizes else hinted(data, agent_hint(agent_id))


class History(NamedTuple):
    """A page of acknowledged deliveries, newest first, and the cursor of the next one."""

    deliveries: list[Delivery]
    next_cursor: str | None


def history(agent_id: str, limit: int, cursor: str | None) -> History:
    """Return a page of acknowledged deliveries, shorter where messages are large. Raises VALIDATION_ERROR for an
    unknown cursor."""
    rows = Delivery.objects.of(agent_id).filter(status=DeliveryStatus.READ).select_related("message__workspace")
    if cursor is not None:
        read_at, delivery_id = _decode(cursor)
        rows = rows.filter(read_at__lte=read_at).exclude(read_at=read_at, delivery_id__gte=delivery_id)
    found = list(rows.order_by("-read_at", "-delivery_id")[: limit + 1])
    page = fitting(found[:limit], _length)
    return History(page, _encode(page[-1]) if len(page) < len(found) else None)


def _encode(last: Delivery) -> str:
    assert last.read_at is not None
    return pages.encode_cursor(last.read_at, last.delivery_id)


def _decode(cursor: str) -> tuple[datetime, str]:
    try:
        read_at, delivery_id = pages.decode_cursor(cursor, datetime, str)
        return read_at, delivery_id
    except ValueError:
        raise invalid(
            "cursor is not one of inbox_history (numeric offsets are no longer taken): "
            "pass next_cursor back as it came, or leave it out to start at the newest.",
            field="cursor",
        ) from None


def not_in_inbox(agent_id: str, message_ids: Iterable[str]) -> list[str]:
    """Return those of the messages that were never delivered to the agent."""
    wanted = list(dict.fromkeys(message_ids))
    there = set(Delivery.objects.of(agent_id).filter(message_id__in=wanted).values_list("message_id", flat=True))
    return [message_id for message_id in wanted if message_id not in there]


def deliveries_of(message_id: str) -> tuple[Message, list[Delivery]]:
    """Return a message and its deliveries by recipient. Raises NOT_FOUND."""
    message = Message.objects.filter(pk=message_id).first()
    if message is None:
        raise not_found("message", message_id)
    return message, list(message.deliveries.order_by("recipient_id"))


MOST = 1_000


def delivery_debts(agents: Collection[str] | None, moment: datetime) -> Iterator[Debt]:
    """Yield a debt for each delivery in flight, also with an expired lease: it is delivered again, and parked in the
    end."""
    # By their status, and not through all that was sent.
    among: Any = Agent.everyone.values("pk") if agents is None else agents
    rows = Delivery.objects.filter(recipient__in=among, status=DeliveryStatus.DELIVERED).order_by("delivery_id")
    about = ("message_id", "message__subject", "message__from_agent_id", "delivered_at", "message__workspace_id")
    for recipient, message_id, subject, sender, since, workspace_id in rows.values_list("recipient_id", *about)[:MOST]:
        if since is not None:  # what is in flight has it
            yield Debt(recipient, "message", message_id, subject, sender, since, workspace_id, promised=False)
