"""Operators' steps on dead letters. Each is one conditional update: of two that act at once, the second gets an error
that the letter is no longer a dead letter."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.log.selectors import first_event_at
from coordination.models import Agent, Event, Stream, Workspace
from coordination.routing import Strategy, Visibility
from coordination.selectors import require_agent
from inbox.lifecycle import MAX_ATTEMPTS
from inbox.models import Delivery, DeliveryQuerySet, DeliveryStatus
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError, invalid, not_found

PARKED = Q(status=DeliveryStatus.PARKED)
UNDONE_WITHIN = timedelta(seconds=60)  # an acknowledgement is taken back


def parked(*, agent_id: str | None = None, workspace: Workspace | None = None) -> DeliveryQuerySet:
    """Return dead letters; of one agent, or of all, and of one workspace, or of all."""
    # By their status, and not through all mail.
    among: Any = Agent.everyone.values("pk") if agent_id is None else [agent_id]
    rows = Delivery.objects.filter(PARKED, recipient__in=among)
    return rows if workspace is None else rows.filter(message__workspace_id=workspace.pk)


def list_dead_letters(*, agent_id: str | None, limit: int, workspace: Workspace | None = None) -> list[Delivery]:
    """Return `parked` letters with their messages, newest first."""
    rows = parked(agent_id=agent_id, workspace=workspace)
    return list(rows.select_related("message__workspace").defer("message__body").order_by("-delivery_id")[:limit])


def subjects(delivery_ids: Sequence[str]) -> dict[str, str]:
    """Return the subjects of letters, by delivery_id."""
    rows = Delivery.objects.filter(pk__in=delivery_ids).values_list("pk", "message__subject", "recipient_id")
    return {pk: f"{subject} (to {recipient})" for pk, subject, recipient in rows}


def requeue(*, delivery_id: str, operator: str) -> Delivery:
    """Put a dead letter back into its inbox with all its attempts. Raises NOT_FOUND, INVALID_TRANSITION."""
    moment = now()
    with write():
        letter = _change(delivery_id, "requeue", status=DeliveryStatus.UNREAD, attempts=0)
        _emit("requeued", letter, operator, moment)
    return letter


def acknowledge(*, delivery_id: str, operator: str) -> Delivery:
    """Acknowledge a dead letter for its recipient. Raises NOT_FOUND, INVALID_TRANSITION."""
    moment = now()
    with write():
        letter = _change(delivery_id, "acknowledge", status=DeliveryStatus.READ, read_at=moment, read_by=_by(operator))
        _emit("acknowledged", letter, operator, moment)
    return letter


def forward(*, delivery_id: str, agent_id: str, operator: str) -> Delivery:
    """Deliver the message of a dead letter to another inbox and acknowledge the letter; return the new delivery.

    Raises NOT_FOUND, VALIDATION_ERROR for an agent that has the message already, INVALID_TRANSITION.
    """
    moment = now()
    with write():
        require_agent(agent_id)
        letter = _change(delivery_id, "forward", status=DeliveryStatus.READ, read_at=moment, read_by=_by(operator))
        if Delivery.objects.of(agent_id).filter(message_id=letter.message_id).exists():
            raise invalid(f"{agent_id!r} has this message already; acknowledge the dead letter.", agent_id=agent_id)
        forwarded = Delivery.objects.create(
            delivery_id=new_id("dlv"), message_id=letter.message_id, recipient_id=agent_id, created_at=moment
        )
        _emit("forwarded", forwarded, operator, moment, message=letter, former=letter.recipient_id)
    return forwarded


def park(*, delivery_id: str, operator: str) -> Delivery:
    """Undo a requeue or an acknowledgement: the letter is a dead letter again.

    Raises NOT_FOUND; INVALID_TRANSITION where it never was one, was pulled since, or was acknowledged longer ago than
    UNDONE_WITHIN.
    """
    moment = now()
    taken_back = Q(status=DeliveryStatus.UNREAD, attempts=0, delivered_at__isnull=False)  # new mail was never delivered
    with write():
        if _acknowledged_since(moment - UNDONE_WITHIN, delivery_id):
            taken_back |= Q(status=DeliveryStatus.READ, attempts__gte=MAX_ATTEMPTS)
        letter = _change(
            delivery_id,
            "park",
            taken_back,
            status=DeliveryStatus.PARKED,
            attempts=MAX_ATTEMPTS,
            read_at=None,
            read_by=None,
        )
        _emit("parked", letter, operator, moment)
    return letter


def _acknowledged_since(moment: datetime, delivery_id: str) -> bool:
    """Return whether an operator's latest act on a letter is an acknowledgement at or after a moment. The state alone
    does not say so: its recipient may have acknowledged it, and a forwarded letter is acknowledged, too."""
    first = first_event_at(moment)
    acts = Event.objects.filter(event_id__gte=first or 0, type__startswith="message.")
    acts = acts.annotate(text=Cast("payload", TextField())).filter(text__contains=delivery_id)  # on every store
    last = acts.order_by("-event_id").first() if first is not None else None
    return last is not None and last.type == "message.acknowledged"


def _by(operator: str) -> str:
    return f"operator {operator}"


def _change(delivery_id: str, verb: str, from_state: Q = PARKED, /, **columns: Any) -> Delivery:
    """Change a letter from the state that was checked; return the changed row. Call it inside a transaction."""
    changed = Delivery.objects.filter(from_state, pk=delivery_id).update(**columns)
    letter = Delivery.objects.filter(pk=delivery_id).select_related("message__workspace").first()
    if letter is None:
        raise not_found("delivery", delivery_id)
    if not changed:
        raise NexusError(
            Code.INVALID_TRANSITION, f"Cannot {verb} mail that is {letter.status}.", {"status": letter.status}
        )
    return letter


def _emit(
    what: str, letter: Delivery, operator: str, moment: datetime, *, message: Delivery | None = None, **more: str
) -> None:
    about = (message or letter).message
    emit(
        workspace_id=about.workspace_id,
        stream=Stream.WORKSPACE,
        type=f"message.{what}",
        actor=None,
        payload={
            "message_id": about.message_id,
            "delivery_id": letter.delivery_id,
            "subject": about.subject,
            "recipients": [letter.recipient_id],
            "operator": operator,
            **more,
        },
        moment=moment,
        visibility=Visibility.PRIVATE,
        target={"strategy": Strategy.DIRECT.value, "agent_id": letter.recipient_id},
    )
