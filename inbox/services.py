"""The verbs of the inbox: send, pull, acknowledge, extend. One transaction each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F

from coordination import selectors as agents_known
from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.lookups import agent_exists
from coordination.models import Agent, Channel, Event, Stream
from coordination.routing import Strategy, Target, Visibility, is_eligible, parse_target
from coordination.services import agents, workspaces
from coordination.services.workspaces import Place
from core.clock import now
from core.limits import within_limit
from core.operations.errors import invalid, not_found
from inbox import lanes, selectors
from inbox.config import InboxSettings
from inbox.models import Delivery, DeliveryStatus, Message


@dataclass(frozen=True)
class Sent:
    """A message as it was sent: whom it reached, and whom it passed over as stale."""

    message: Message
    event_id: int
    recipients: list[str]
    excluded_stale: list[str]
    workspace_created: bool


def send(
    *,
    project_root: str,
    from_agent_id: str,
    subject: str,
    body: str,
    channel_id: str | None = None,
    from_session_id: str | None = None,
    target: Any = None,
    artifacts: Sequence[str] = (),
    parent_message_id: str | None = None,
) -> Sent:
    """Persist a message, one delivery per recipient and the event, all or nothing (contract: message_create).

    Raises, first found first, VALIDATION_ERROR (blank subject or body, malformed target), WORKSPACE_UNRESOLVED,
    CONTENT_TOO_LARGE, NOT_FOUND (channel, parent, or the agent of a direct target).
    """
    for field, text in (("subject", subject), ("body", body)):
        if not text.strip():
            raise invalid(f"{field} must not be blank.", field=field)
    parsed = parse_target(target, timed=False)
    place, moment = workspaces.locate(project_root), now()
    within_limit(subject, "subject")
    within_limit(body, "body")
    admitted = _admitted(parsed, from_agent_id, moment)
    with transaction.atomic():
        workspace_created = workspaces.ensure(place, moment)
        _check_place(place, channel_id, parent_message_id)
        recipients, excluded_stale = _resolve(parsed, admitted, place.workspace_id, from_agent_id, moment)
        message = Message(
            message_id=new_id("msg"),
            workspace_id=place.workspace_id,
            from_agent_id=from_agent_id,
            from_session_id=from_session_id,
            channel_id=channel_id,
            parent_id=parent_message_id,
            target=parsed,
            subject=subject,
            body=body,
            artifacts=list(artifacts),
            created_at=moment,
        )
        event = _post(message, recipients)
        agents.touch(from_agent_id, moment)
    return Sent(message, event.event_id, recipients, excluded_stale, workspace_created)


def notify(
    *, workspace_id: str, from_agent_id: str, recipient: str, subject: str, body: str, moment: datetime
) -> list[str]:
    """Put a notice of the system into one inbox, inside the caller's transaction; the agents it reached.

    Nobody when the recipient is unregistered.
    """
    if not agent_exists(recipient):
        return []
    message = Message(
        message_id=new_id("msg"),
        workspace_id=workspace_id,
        from_agent_id=from_agent_id,
        target={"strategy": Strategy.DIRECT.value, "agent_id": recipient},
        subject=subject,
        body=body,
        created_at=moment,
    )
    _post(message, [recipient])
    return [recipient]


def pull(*, agent_id: str, limit: int, lease_seconds: int | None) -> list[Delivery]:
    """Lease the oldest claimable deliveries to their recipient and return them (contract: inbox_pull).

    Claimable is unread, or in flight with a lapsed lease. One handed out MAX_ATTEMPTS times is parked instead, and
    takes its place in `limit`.
    """
    moment = now()
    if not selectors.claimable(agent_id, 1, moment):
        agents.touch_in_passing(agent_id)  # an empty inbox is a read and must not queue behind writers
        return []
    ttl = InboxSettings.current().inbox_lease_ttl_seconds if lease_seconds is None else lanes.clamp_lease(lease_seconds)
    with transaction.atomic():
        claimed = selectors.claimable(agent_id, limit, moment)
        handed = [delivery for delivery in claimed if not lanes.exhausted(delivery.attempts)]
        _move(
            (delivery for delivery in claimed if lanes.exhausted(delivery.attempts)),
            status=DeliveryStatus.PARKED,
            lease_expires_at=None,
        )
        _move(
            handed,
            status=DeliveryStatus.DELIVERED,
            attempts=F("attempts") + 1,
            delivered_at=moment,
            lease_expires_at=moment + timedelta(seconds=ttl),
        )
        agents.touch(agent_id, moment)
    for delivery in handed:
        delivery.status, delivery.delivered_at = DeliveryStatus.DELIVERED, moment
        delivery.lease_expires_at = moment + timedelta(seconds=ttl)
    return handed


def acknowledge(*, agent_id: str, message_ids: Iterable[str]) -> int:
    """Settle messages into history, from whatever lane; how many moved (contract: inbox_ack). Idempotent."""
    moment = now()
    with transaction.atomic():
        moved = (
            Delivery.objects.of(agent_id)
            .filter(message_id__in=set(message_ids))
            .exclude(status=DeliveryStatus.READ)
            .update(status=DeliveryStatus.READ, read_at=moment, lease_expires_at=None)
        )
        agents.touch(agent_id, moment)
    return moved


def extend(*, agent_id: str, message_ids: Iterable[str], extend_seconds: int) -> tuple[int, datetime]:
    """Renew the leases of messages in flight, all of them or none; how many, and until when (contract: inbox_extend).

    Raises VALIDATION_ERROR with a reason per message when any of them is not in flight.
    """
    moment = now()
    until = moment + timedelta(seconds=lanes.clamp_lease(extend_seconds))
    wanted = list(dict.fromkeys(message_ids))
    with transaction.atomic():
        held = {row.message_id: row for row in Delivery.objects.of(agent_id).filter(message_id__in=wanted)}
        reasons = {
            message_id: why
            for message_id in wanted
            if (why := _why_not_extendable(held.get(message_id), moment)) is not None
        }
        if reasons:
            listed = "; ".join(f"{message_id}: {why}" for message_id, why in list(reasons.items())[:5])
            raise invalid(f"Nothing was extended. {listed}.", messages=reasons)
        extended = Delivery.objects.of(agent_id).leased(moment).filter(message_id__in=wanted)
        count = extended.update(lease_expires_at=until)
        agents.touch(agent_id, moment)
    return count, until


def _why_not_extendable(delivery: Delivery | None, moment: datetime) -> str | None:
    if delivery is None:
        return lanes.why_not_extendable(None, None, moment)
    return lanes.why_not_extendable(delivery.status, delivery.lease_expires_at, moment)


def _check_place(place: Place, channel_id: str | None, parent_message_id: str | None) -> None:
    """The channel is one of the workspace; the parent too and, when a channel is set, of that channel."""
    if channel_id is not None and not Channel.objects.filter(workspace_id=place.workspace_id, pk=channel_id).exists():
        raise not_found("channel", channel_id)
    if parent_message_id is not None:
        parents = Message.objects.filter(workspace_id=place.workspace_id, pk=parent_message_id)
        if not (parents.filter(channel_id=channel_id) if channel_id is not None else parents).exists():
            raise not_found("parent message", parent_message_id)


def _admitted(target: Target | None, sender: str, moment: datetime) -> list[str]:
    """The agents that a group target admits now: every one is held against every rule, so not under the write lock."""
    if target is None or target["strategy"] in (Strategy.BROADCAST, Strategy.DIRECT):
        return []
    return [
        agent.agent_id
        for agent in agents_known.profiles()
        if agent.agent_id != sender and is_eligible(target, agent, created_at=moment, now=moment)
    ]


def _resolve(
    target: Target | None, admitted: list[str], workspace_id: str, sender: str, moment: datetime
) -> tuple[list[str], list[str]]:
    """The recipients of a message and the agents left out as stale (contract: Recipient resolution)."""
    if target is None or target["strategy"] == Strategy.BROADCAST:
        present, stale = agents_known.participants(workspace_id, moment)
        return [agent for agent in present if agent != sender], [agent for agent in stale if agent != sender]
    if target["strategy"] == Strategy.DIRECT:
        if not agent_exists(target["agent_id"]):
            raise not_found("agent", target["agent_id"])
        return [target["agent_id"]], []
    still_there = set(Agent.objects.filter(pk__in=admitted).values_list("pk", flat=True)) if admitted else set()
    return [agent_id for agent_id in admitted if agent_id in still_there], []


def _post(message: Message, recipients: list[str]) -> Event:
    """Write a message, one delivery per recipient and the event, inside the caller's transaction."""
    message.recipients_count = len(recipients)
    message.save(force_insert=True)
    Delivery.objects.bulk_create(
        Delivery(delivery_id=new_id("dlv"), message=message, recipient_id=recipient, created_at=message.created_at)
        for recipient in recipients
    )
    return emit(
        workspace_id=message.workspace_id,
        stream=Stream.WORKSPACE,
        type="message.created",
        actor=message.from_agent_id,
        payload={
            "message_id": message.message_id,
            "from_agent_id": message.from_agent_id,
            "subject": message.subject,
            "channel_id": message.channel_id,
            "parent_message_id": message.parent_id,
            "recipients": recipients,
        },
        moment=message.created_at,
        visibility=Visibility.ELIGIBLE if message.target else Visibility.PUBLIC,
        target=message.target,
    )


def _move(deliveries: Iterable[Delivery], **changes: Any) -> None:
    """Update deliveries that are still in the lane they were read in."""
    chosen = list(deliveries)
    if chosen:
        Delivery.objects.filter(
            pk__in=[delivery.pk for delivery in chosen],
            status__in=[DeliveryStatus.UNREAD, DeliveryStatus.DELIVERED],
        ).update(**changes)
