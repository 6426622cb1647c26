"""The rows of this app as every transport shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

from coordination.provenance import NOBODY, Behalf, FromProof, OnBehalfOf, provenance_row
from inbox import lifecycle
from inbox.models import Delivery, DeliveryStatus, Message
from nexus.core.clock import iso
from nexus.core.operations.parameters import Time, one_of

DeliveryState = Annotated[str, one_of(DeliveryStatus, "delivered: leased and not acknowledged; parked: a dead letter.")]


class SentRow(TypedDict):
    """A message as its sender gets it, who knows the project and the body."""

    message_id: str
    workspace_id: str
    from_agent_id: str
    from_session_id: str | None
    channel_id: str | None
    parent_message_id: str | None
    target: dict[str, Any] | None
    subject: str
    artifacts: list[str]
    trace_id: NotRequired[str]
    from_proof: NotRequired[FromProof]
    created_at: Time


def sent_row(message: Message) -> SentRow:
    return {
        "message_id": message.message_id,
        "workspace_id": message.workspace_id,
        "from_agent_id": message.from_agent_id,
        "from_session_id": message.from_session_id,
        "channel_id": message.channel_id,
        "parent_message_id": message.parent_id,
        "target": message.target,
        "subject": message.subject,
        "artifacts": message.artifacts,
        **_beside(message),  # type: ignore[typeddict-item]  # which holds no other key
        "created_at": iso(message.created_at),
    }


class MessageRow(SentRow):
    body: str
    workspace_name: str  # of the project it belongs to


def message_row(message: Message) -> MessageRow:
    return {**sent_row(message), "body": message.body, "workspace_name": message.workspace.name}


class InboxRow(TypedDict):
    """A message in an inbox."""

    delivery_id: str
    message_id: str
    status: DeliveryState
    delivered_at: Time | None
    lease_expires_at: Time | None
    read_at: Time | None
    from_agent_id: str
    workspace_id: str
    workspace_name: str  # of the project it comes from
    channel_id: str | None
    parent_message_id: str | None
    subject: str
    body: str
    target: dict[str, Any] | None
    artifacts: list[str]
    trace_id: NotRequired[str]
    from_proof: NotRequired[FromProof]
    on_behalf_of: NotRequired[OnBehalfOf]
    created_at: Time


def inbox_row(delivery: Delivery, moment: datetime, behalf: Behalf) -> InboxRow:
    """Return the row of a delivery with its status at `moment`: in flight with an expired lease is unread."""
    message = delivery.message
    return {
        "delivery_id": delivery.delivery_id,
        "message_id": message.message_id,
        "status": lifecycle.effective(delivery.status, delivery.lease_expires_at, moment),
        "delivered_at": iso(delivery.delivered_at),
        "lease_expires_at": iso(delivery.lease_expires_at),
        "read_at": iso(delivery.read_at),
        "from_agent_id": message.from_agent_id,
        "workspace_id": message.workspace_id,
        "workspace_name": message.workspace.name,
        "channel_id": message.channel_id,
        "parent_message_id": message.parent_id,
        "subject": message.subject,
        "body": message.body,
        "target": message.target,
        "artifacts": message.artifacts,
        **_beside(message, behalf),  # type: ignore[typeddict-item]  # which holds no other key
        "created_at": iso(message.created_at),
    }


def _beside(message: Message, behalf: Behalf = NOBODY) -> dict[str, str]:
    """Return what a message has beside what every message has."""
    trace = {} if message.trace_id is None else {"trace_id": message.trace_id}
    return {**trace, **provenance_row(message, behalf)}


class RecipientRow(TypedDict):
    """Where a message stands with one recipient."""

    recipient: str
    status: DeliveryState
    attempts: int
    read_at: Time | None


class DeliveryRow(RecipientRow):
    delivery_id: str
    delivered_at: Time | None
    lease_expires_at: Time | None


def recipient_row(delivery: Delivery, moment: datetime) -> RecipientRow:
    """Return where a message stands with one recipient at `moment`."""
    return {
        "recipient": delivery.recipient_id,
        "status": lifecycle.effective(delivery.status, delivery.lease_expires_at, moment),
        "attempts": delivery.attempts,
        "read_at": iso(delivery.read_at),
    }


def delivery_row(delivery: Delivery, moment: datetime) -> DeliveryRow:
    """Return the row of a delivery with its status at `moment`."""
    return {
        **recipient_row(delivery, moment),
        "delivery_id": delivery.delivery_id,
        "delivered_at": iso(delivery.delivered_at),
        "lease_expires_at": iso(delivery.lease_expires_at),
    }
