"""Send, pull, acknowledge and extend messages. Each is one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count

from coordination import selectors as agents_known
from coordination.ids import id_floor, new_id
from coordination.log.emit import emit
from coordination.models import Agent, Channel, Event, Stream
from coordination.provenance import Proof
from coordination.routing import Strategy, Target, Visibility, describe, parse_target
from coordination.selectors import agent_exists, require_agent
from coordination.services import agents, retries, tags, workspaces
from coordination.services.agent_limits import exceeded, limit
from coordination.services.workspaces import ProjectDirectory
from inbox import lifecycle, selectors, sql
from inbox.config import InboxSettings
from inbox.models import Delivery, DeliveryStatus, Message
from inbox.search import document_of
from nexus.core.clock import now
from nexus.core.database.sql import insert
from nexus.core.database.store import store, write
from nexus.core.operations.errors import invalid, not_found
from nexus.core.size_limits import within_limit


@dataclass(frozen=True)
class SentMessage:
    """A sent message, the agents that it reached, and those left out as stale or because their inbox is full."""

    message: Message
    event_id: int
    recipients: list[str]
    excluded_stale: list[str]
    excluded_full: list[str]
    workspace_created: bool
    duplicate: bool = False  # sent before, with the same client_id


# What a call says.
CONTENT = ("workspace_id", "channel_id", "parent_id", "target", "subject", "body", "artifacts", "trace_id")


def send(
    *,
    project_root: str | None,
    from_agent_id: str,
    subject: str,
    body: str,
    channel_id: str | None = None,
    from_session_id: str | None = None,
    target: Any = None,
    artifacts: Sequence[str] = (),
    parent_message_id: str | None = None,
    trace_id: str | None = None,
    client_id: str | None = None,
    expect: str | None = None,
    within_seconds: int | None = None,
    proof: str | None = None,
) -> SentMessage:
    """Store a message, one delivery per recipient and the event, all or nothing.

    A reply goes to the workspace of the message that it answers, whatever project the sender is in, if the sender
    received that message; without a `project_root`, also if the sender wrote it. It has the trace of that message,
    unless it names another. Where a recipient has not reached the stage `expect` in time, the sender is told. `proof`
    is what proves the sender. If the sender already sent a message with the same client_id, return that one. Raises,
    first found first, VALIDATION_ERROR (blank subject or body, malformed target), WORKSPACE_UNRESOLVED,
    CONTENT_TOO_LARGE, NOT_FOUND (channel, parent, or the agent of a direct target), QUOTA_EXCEEDED.
    """
    for field, text in (("subject", subject), ("body", body)):
        if not text.strip():
            raise invalid(f"{field} must not be blank.", field=field)
    if (expect is None) != (within_seconds is None):
        raise invalid("expect and within_seconds go together.", field="within_seconds" if expect else "expect")
    parsed = parse_target(target, timed=False)
    project, moment = workspaces.locate(project_root) if project_root is not None else None, now()
    within_limit(subject, "subject")
    within_limit(body, "body")
    tags.check_target(parsed)
    admitted = _admitted(parsed, from_agent_id, moment)
    workspace_id, inherited = _where(project, channel_id, parent_message_id, from_agent_id)
    with write(workspace_id, from_agent_id):
        message = Message(
            message_id=new_id("msg"),
            workspace_id=workspace_id,
            from_agent_id=from_agent_id,
            from_session_id=from_session_id,
            channel_id=channel_id,
            parent_id=parent_message_id,
            target=parsed,
            subject=subject,
            body=body,
            artifacts=list(artifacts),
            client_id=client_id,
            trace_id=inherited if trace_id is None else trace_id,
            expect=expect,
            expect_by=None if within_seconds is None else moment + timedelta(seconds=within_seconds),
            proof=proof,
            created_at=moment,
        )
        if first := retries.made_before(message, maker=("from_agent_id",), same=CONTENT):
            agents.touch(from_agent_id, moment)
            return _sent_before(first)
        workspace_created = (
            project is not None and workspace_id == project.workspace_id and workspaces.ensure(project, moment)
        )
        check_pace(from_agent_id, moment)
        addressed, excluded_stale = _resolve(parsed, admitted, workspace_id, from_agent_id, moment)
        if parsed is not None and parsed["strategy"] == Strategy.TAG and not addressed:  # never sent to nobody
            raise not_found("other agent", describe(parsed)[:200])
        check_breadth(from_agent_id, addressed)
        recipients, excluded_full = with_room(addressed, moment)
        with store().batch():
            event = _post(message, recipients)
            agents.touch(from_agent_id, moment)
    return SentMessage(message, event.event_id, recipients, excluded_stale, excluded_full, workspace_created)


def _sent_before(message: Message) -> SentMessage:
    """Return a message as it was answered when it was sent, without what retention has removed since."""
    event_id = document_of(message.message_id) or 0  # of its message.created event
    event = Event.objects.filter(pk=event_id).first()
    recipients = event.payload["recipients"] if event else message.deliveries.values_list("recipient_id", flat=True)
    return SentMessage(message, event_id, sorted(recipients), [], [], workspace_created=False, duplicate=True)


def notify(
    *,
    workspace_id: str,
    from_agent_id: str,
    recipient: str,
    subject: str,
    body: str,
    moment: datetime,
    trace_id: str | None = None,
) -> list[str]:
    """Put a system notice into one inbox, inside the caller's transaction; return whom it reached.

    It reaches nobody when the recipient is unregistered. No limit refuses a notice: a full inbox would hold up the
    work.
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
        trace_id=trace_id,
        proof=Proof.HUB,
        created_at=moment,
    )
    _post(message, [recipient])
    return [recipient]


class Pulled(NamedTuple):
    """What a pull handed over, and how many messages it moved into history before."""

    deliveries: list[Delivery]
    acknowledged: int


def pull(
    *, agent_id: str, limit: int, lease_seconds: int | None, by: str, acknowledged: Collection[str] = ()
) -> Pulled:
    """Acknowledge messages, then lease the oldest claimable deliveries to their recipient. `by` is the session,
    connection or turn that gets them.

    Claimable is unread, or in flight with an expired lease. A delivery that was pulled MAX_ATTEMPTS times is parked
    instead, and counts towards `limit`.
    """
    moment = now()
    found = selectors.claimable(agent_id, limit, moment)
    if not found and not acknowledged:
        agents.touch_after_read(agent_id)  # an empty inbox is a read and must not queue behind writers
        return Pulled([], 0)
    ttl = (
        InboxSettings.current().inbox_lease_ttl_seconds
        if lease_seconds is None
        else lifecycle.clamp_lease(lease_seconds)
    )
    until = moment + timedelta(seconds=ttl)
    with write(agent_id):
        moved = _move_to_history(agent_id, acknowledged, moment, by)
        taken = [delivery for delivery in found if _claim(delivery, moment, until, by)]
        if len(taken) < len(found):  # acknowledged, or another was quicker since the look: what else is there now
            rest = selectors.claimable(agent_id, limit - len(taken), moment)
            taken += [delivery for delivery in rest if _claim(delivery, moment, until, by)]
        agents.touch(agent_id, moment)
    handed = [delivery for delivery in taken if delivery.status == DeliveryStatus.DELIVERED]
    return Pulled(sorted(handed, key=lambda delivery: delivery.delivery_id), moved)


def acknowledge(*, agent_id: str, message_ids: Iterable[str], by: str) -> int:
    """Move messages into history, from any status; return how many moved. Idempotent. `by` is as in `pull`."""
    moment = now()
    with write(agent_id):
        moved = _move_to_history(agent_id, message_ids, moment, by)
        agents.touch(agent_id, moment)
    return moved


def _move_to_history(agent_id: str, message_ids: Iterable[str], moment: datetime, by: str) -> int:
    return sql.settle.each(
        {"agent_id": agent_id, "message_id": message_id, "moment": moment, "by": by} for message_id in set(message_ids)
    )


def extend(*, agent_id: str, message_ids: Iterable[str], extend_seconds: int) -> tuple[int, datetime]:
    """Renew the leases of messages in flight, all of them or none; return how many, and the new end.

    Raises VALIDATION_ERROR with a reason per message when any of them is not in flight.
    """
    moment = now()
    until = moment + timedelta(seconds=lifecycle.clamp_lease(extend_seconds))
    wanted = list(dict.fromkeys(message_ids))
    with write(agent_id):
        held = {row.message_id: row for row in Delivery.objects.of(agent_id).filter(message_id__in=wanted)}
        reasons = {
            message_id: why
            for message_id in wanted
            if (why := _why_not_extendable(held.get(message_id), moment)) is not None
        }
        if reasons:
            reasons_given = "; ".join(f"{message_id}: {why}" for message_id, why in list(reasons.items())[:5])
            raise invalid(f"Nothing was extended. {reasons_given}.", messages=reasons)
        extended = Delivery.objects.of(agent_id).leased(moment).filter(message_id__in=wanted)
        count = extended.update(lease_expires_at=until)
        agents.touch(agent_id, moment)
    return count, until


def end_leases_in(*, agent_id: str, message_ids: Iterable[str], seconds: int) -> int:
    """Set the running leases of messages to end `seconds` from now, whether that is earlier or later; return how many.

    For callers that pulled on an agent's behalf: what was acknowledged meanwhile stays so.
    """
    moment = now()
    with write(agent_id):
        held = Delivery.objects.of(agent_id).leased(moment).filter(message_id__in=list(message_ids))
        return held.update(lease_expires_at=moment + timedelta(seconds=seconds))


def _why_not_extendable(delivery: Delivery | None, moment: datetime) -> str | None:
    if delivery is None:
        return lifecycle.why_not_extendable(None, None, moment)
    return lifecycle.why_not_extendable(delivery.status, delivery.lease_expires_at, moment)


def _where(
    project: ProjectDirectory | None, channel_id: str | None, parent_message_id: str | None, sender: str
) -> tuple[str, str | None]:
    """Return the workspace that a message goes to (the sender's, or that of the message it answers), and the trace of
    the latter.

    Raises NOT_FOUND for a parent of another workspace in which the sender took no part, for a channel of another
    workspace, and for a parent of another channel than the one that is set.
    """
    workspace_id, parent = project.workspace_id if project else "", None
    if parent_message_id is not None:
        parent = Message.objects.filter(pk=parent_message_id).defer("subject", "body", "target", "artifacts").first()
        if parent is None or not (parent.workspace_id == workspace_id or _took_part(parent, project, sender)):
            raise not_found("parent message", parent_message_id)
        workspace_id = parent.workspace_id
    if channel_id is not None and not Channel.objects.filter(workspace_id=workspace_id, pk=channel_id).exists():
        raise not_found("channel", channel_id)
    if parent is not None and channel_id not in (None, parent.channel_id):
        raise not_found("parent message", parent.message_id)
    return workspace_id, None if parent is None else parent.trace_id


def _took_part(parent: Message, project: ProjectDirectory | None, sender: str) -> bool:
    """Return whether an agent may answer a message of another workspace."""
    if project is None and parent.from_agent_id == sender:
        return True
    return Delivery.objects.of(sender).filter(message=parent).exists()


def _admitted(target: Target | None, sender: str, moment: datetime) -> list[str]:
    """Return the agents that a group target admits now, sorted. It compares each with every rule, so do not call it
    under the write lock."""
    if target is None or target["strategy"] in (Strategy.BROADCAST, Strategy.DIRECT):
        return []
    return sorted(agent.agent_id for agent in agents_known.admitted(target, moment) if agent.agent_id != sender)


def _resolve(
    target: Target | None, admitted: list[str], workspace_id: str, sender: str, moment: datetime
) -> tuple[list[str], list[str]]:
    """Return the recipients of a message, sorted, and the agents left out as stale (docs/explanation/delivery.md)."""
    if target is None or target["strategy"] == Strategy.BROADCAST:
        present, stale = agents_known.participants(workspace_id, moment)
        return [agent for agent in present if agent != sender], [agent for agent in stale if agent != sender]
    if target["strategy"] == Strategy.DIRECT:
        require_agent(target["agent_id"])
        return [target["agent_id"]], []
    still_there = set(Agent.objects.filter(pk__in=admitted).values_list("pk", flat=True)) if admitted else set()
    return [agent_id for agent_id in admitted if agent_id in still_there], []


def _post(message: Message, recipients: list[str]) -> Event:
    """Write a message, one delivery per recipient and the event, inside the caller's transaction."""
    message.recipients_count = len(recipients)
    insert(message)
    insert(
        *(
            Delivery(
                delivery_id=new_id("dlv"),
                message_id=message.message_id,
                recipient_id=recipient,
                created_at=message.created_at,
            )
            for recipient in recipients
        )
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
        trace_id=message.trace_id,
    )


def _claim(delivery: Delivery, moment: datetime, until: datetime, by: str) -> bool:
    """Lease a delivery, or park it, from the state it was read in; return False when another pull or an
    acknowledgement was first."""
    of = {"delivery_id": delivery.delivery_id, "attempts": delivery.attempts, "moment": moment}
    if lifecycle.exhausted(delivery.attempts):
        delivery.status, delivery.lease_expires_at = DeliveryStatus.PARKED, None
        return bool(sql.park(**of))
    delivery.status, delivery.delivered_at, delivery.lease_expires_at = DeliveryStatus.DELIVERED, moment, until
    return bool(sql.lease(**of, until=until, by=by))


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
    unread = Delivery.objects.filter(recipient_id__in=limits).with_status(DeliveryStatus.UNREAD, moment)
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
