"""The operations of the inbox: send, receive and follow messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Never, NotRequired, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo
from typing_extensions import TypedDict

from coordination import activity
from coordination.errors import CoordinationCode
from coordination.log.selectors import interest_keys
from coordination.models import Event
from coordination.parameters import IN_WORKSPACE, MOUNTED, ClientId, SessionId, SessionSecret, in_session
from coordination.provenance import on_behalf_of, proof_of
from coordination.routing import an_object
from coordination.rows import Duplicate
from coordination.selectors import agent_hint
from coordination.toolset import COORDINATION, operation
from inbox import receipts, selectors, services
from inbox.models import ARRIVALS, Delivery, Message
from inbox.rows import InboxRow, RecipientRow, SentRow, inbox_row, recipient_row, sent_row
from nexus.core.clock import iso, now
from nexus.core.domain import ANY
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, ErrorCode, NexusError
from nexus.core.operations.parameters import (
    MAX_IDS_A_CALL,
    FieldErrors,
    Id,
    Limit,
    OfConnection,
    Params,
    Terse,
    Time,
    not_blank,
)
from nexus.core.operations.registry import Wait
from nexus.core.operations.replies import AgentResource, Data, Reference, hinted, packaged
from nexus.core.size_limits import up_to_the_limit
from nexus.core.waiting import Interest


class InboxCode(ErrorCode):
    """Errors of operations that were removed."""

    MIGRATED = "MIGRATED", 410, "The tool was replaced; details.replacements names what to call."


DEFAULT_LIMIT, MAX_LIMIT = 50, 200
NAMED = 5  # ids that a hint names
TRUST_ERRORS = (Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.NOT_OWNER)

SomeIds = Annotated[list[Id], Field(min_length=1, max_length=MAX_IDS_A_CALL)]
AnyIds = Annotated[list[Id], Field(max_length=MAX_IDS_A_CALL)]
IDS = Field(description="One message_id or a list of them.")
PageSize = Annotated[
    Limit | None, Field(description=f"{DEFAULT_LIMIT} by default, {MAX_LIMIT} at most; fewer if large.")
]

COORDINATION.administered_in("inbox.administration")


def _or_parent(project_root: str | None, info: ValidationInfo) -> str | None:
    """Take the workspace of a reply from its parent; every other message must name its project. Raises ValueError."""
    if project_root is None:
        if not info.data.get("parent_message_id"):
            raise ValueError("is required")
        return None
    return not_blank(project_root)


class MessageCreate(Params):
    from_agent_id: Annotated[Id, Field(description="You.")]
    subject: str
    body: Annotated[str, up_to_the_limit("artifact_put.")]
    channel_id: Annotated[Id | None, Field(description="A label, from channel_list.")] = None
    from_session_id: SessionId = None
    target: Annotated[
        dict[str, Any] | None,
        BeforeValidator(an_object),
        Field(
            description='{"strategy":"direct","agent_id":"…"}; or role, capability, mixed: nexus://reference/targets. '
            "Omitted: a broadcast."
        ),
    ] = None
    artifacts: Annotated[list[Id] | None, Field(max_length=MAX_IDS_A_CALL, description="artifact_ids.")] = None
    parent_message_id: Annotated[Id | None, Field(description="The message you answer.")] = None
    trace_id: Annotated[Id | None, Terse(), Field(description="Default: that of the message you answer.")] = None
    project_root: Annotated[
        str | None,
        FieldErrors(absent=CoordinationCode.WORKSPACE_REQUIRED, rank=0),
        OfConnection(unless="parent_message_id"),
        MOUNTED,
        Field(
            max_length=4096,
            validate_default=True,
            description="Not needed with parent_message_id.",
        ),
        AfterValidator(_or_parent),  # after parent_message_id, which it looks at
    ] = None
    session_secret: SessionSecret = None
    client_id: ClientId = None
    expect: Annotated[
        Literal["noticed", "handed_over", "acknowledged", "acted_on"] | None,
        Terse(),
        Field(description="The stage that each recipient is to reach within_seconds; you are told where one has not."),
    ] = None
    within_seconds: Annotated[
        int | None, Terse(), Field(ge=1, le=receipts.LONGEST_WAIT, description="At most a week.")
    ] = None


class SentMessage(SentRow):
    event_id: int
    recipients: list[str]
    delivered_count: int
    workspace_created: NotRequired[Literal[True]]
    excluded_stale: NotRequired[
        Annotated[list[str], Field(description="Agents without a recent heartbeat: the broadcast did not reach them.")]
    ]
    excluded_full: NotRequired[Annotated[list[str], Field(description="Agents whose inbox is full.")]]
    warning: NotRequired[str]
    duplicate: NotRequired[Duplicate]


@operation(
    MessageCreate,
    *IN_WORKSPACE,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_FOUND,
    Code.NOT_OWNER,
    CoordinationCode.QUOTA_EXCEEDED,
    acts_as="from_agent_id",
    requires=(in_session("from_session_id"),),
    recent_place=True,
)
def message_create(p: MessageCreate, caller: Caller) -> SentMessage:
    """Send a message into the inbox of every agent the target names. Answer whoever wrote to you with a direct target;
    broadcast only information or open questions, never tasks (use handoff_create). recipients tells whom it reached."""
    sent = services.send(
        project_root=p.project_root,
        from_agent_id=p.from_agent_id,
        subject=p.subject,
        body=p.body,
        channel_id=p.channel_id,
        from_session_id=p.from_session_id,
        target=p.target,
        artifacts=p.artifacts or (),
        parent_message_id=p.parent_message_id,
        trace_id=p.trace_id,
        client_id=p.client_id,
        expect=p.expect,
        within_seconds=p.within_seconds,
        proof=proof_of(caller, p.session_secret),
    )
    data: SentMessage = {
        **sent_row(sent.message),  # type: ignore[typeddict-item]  # a row holds none of the keys left out
        "event_id": sent.event_id,
        "recipients": sent.recipients,
        "delivered_count": sent.message.recipients_count,
    }
    if sent.duplicate:
        data["duplicate"] = True
    if sent.workspace_created:
        data["workspace_created"] = True
    if sent.excluded_stale:
        data["excluded_stale"] = sent.excluded_stale
    if sent.excluded_full:
        data["excluded_full"] = sent.excluded_full
    if warning := _warning(sent):
        data["warning"] = warning
    return data


def _warning(sent: services.SentMessage) -> str | None:
    if sent.excluded_full:
        return "The inboxes of those in excluded_full take no more for now: they did not get this message."
    if sent.excluded_stale:
        return "Agents with no recent heartbeat did not get this broadcast; reach those in excluded_stale directly."
    if not sent.recipients:
        return "The target matched no agent: nobody received this message."
    return activity.why_it_waits(sent.recipients, now())


class Trusted(Params):
    """An agent at its own inbox."""

    agent_id: Id
    session_id: SessionId = None
    session_secret: SessionSecret = None


def _behind(p: Trusted, caller: Caller) -> str:
    """Return what a receipt says of who pulled or acknowledged."""
    return p.session_id or caller.connection or caller.transport


class InboxPull(Trusted):
    limit: PageSize = None
    lease_seconds: Annotated[int | None, Field(description="10 to 3600; 300 by default.")] = None
    ack_message_ids: Annotated[
        AnyIds | None, Field(description="What you handled, acknowledged first; as inbox_ack.")
    ] = None
    wait_seconds: Annotated[int | None, Field(ge=0, description="Longest wait; the server allows 30 by default.")] = (
        None
    )


class InboxPage(TypedDict):
    messages: list[InboxRow]
    count: int
    acknowledged: NotRequired[int]


def _arrivals(p: InboxPull) -> Interest:
    """Return the interest in mail for an agent, whatever workspace it is sent in."""
    return Interest(interest_keys([ANY], [ANY], p.agent_id), lambda event: p.agent_id in recipients_of_event(event))


def _pulled(p: InboxPull, caller: Caller, acknowledged: Sequence[str] = ()) -> services.Pulled:
    return services.pull(
        agent_id=p.agent_id,
        limit=page_size(p.limit),
        lease_seconds=p.lease_seconds,
        by=_behind(p, caller),
        acknowledged=acknowledged,
    )


@operation(
    InboxPull,
    *TRUST_ERRORS,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    wait=Wait[InboxPull](
        timeout=lambda p: p.wait_seconds or 0,
        interested=_arrivals,
        done=lambda data: data["count"] > 0,
        finish=lambda p, caller, data: {**data, **_messages(_pulled(p, caller).deliveries)},
        expired=lambda p, data: data,
    ),
)
def inbox_pull(p: InboxPull, caller: Caller) -> InboxPage:
    """Receive your mail with its bodies, leased to you: acknowledge what you handled before the lease ends, or it comes
    again; after 5 hand-outs it is parked."""
    wanted = p.ack_message_ids
    pulled = _pulled(p, caller, wanted or ())
    data = _messages(pulled.deliveries)
    hint = None if pulled.deliveries or pulled.acknowledged else agent_hint(p.agent_id)
    if wanted is not None:
        data["acknowledged"] = pulled.acknowledged
        if pulled.acknowledged < len(wanted):
            hint = hint or _strange(p.agent_id, wanted)
    return hinted(data, hint)


class InboxAck(Trusted):
    message_ids: Annotated[Id | AnyIds, Terse(), IDS]


class Acknowledged(TypedDict):
    acknowledged: int


@operation(InboxAck, *TRUST_ERRORS, acts_as="agent_id", requires=(in_session("session_id"),), idempotent=True)
def inbox_ack(p: InboxAck, caller: Caller) -> Acknowledged:
    """Acknowledge messages that you handled: they move to history and do not come again."""
    wanted = _as_list(p.message_ids)
    data: Acknowledged = {
        "acknowledged": services.acknowledge(agent_id=p.agent_id, message_ids=wanted, by=_behind(p, caller))
    }
    return data if data["acknowledged"] == len(wanted) else hinted(data, _strange(p.agent_id, wanted))


def _strange(agent_id: str, wanted: list[str]) -> str | None:
    """Return a hint about messages that were never delivered to an agent; None where all were."""
    strange = selectors.not_in_inbox(agent_id, wanted)
    if not strange:
        return None
    named = ", ".join(map(repr, strange[:NAMED]))
    return agent_hint(agent_id) or f"Not in the inbox of {agent_id!r}: {named}. inbox_peek has the ids."


class InboxExtend(Trusted):
    message_ids: Annotated[Id | SomeIds, Terse(), IDS]
    extend_seconds: Annotated[int, Field(description="10 to 3600, from now.")]


class ExtendedLease(TypedDict):
    extended: int
    lease_expires_at: Time


@operation(InboxExtend, *TRUST_ERRORS, acts_as="agent_id", requires=(in_session("session_id"),))
def inbox_extend(p: InboxExtend, caller: Caller) -> ExtendedLease:
    """Renew the lease on pulled messages that take longer; all of them or none."""
    count, until = services.extend(
        agent_id=p.agent_id, message_ids=_as_list(p.message_ids), extend_seconds=p.extend_seconds
    )
    return {"extended": count, "lease_expires_at": iso(until)}


class InboxPeek(Trusted):
    limit: PageSize = None
    include_parked: bool = False


@operation(InboxPeek, *TRUST_ERRORS, acts_as="agent_id", requires=(in_session("session_id"),), read_only=True)
def inbox_peek(p: InboxPeek, caller: Caller) -> InboxPage:
    """Look at pending mail, bodies included, without taking it; include_parked shows dead letters too."""
    pending = selectors.pending(p.agent_id, page_size(p.limit), include_parked=p.include_parked)
    return hinted(_messages(pending), None if pending else agent_hint(p.agent_id))


class InboxCount(Params):
    agent_id: Id


@operation(InboxCount, Code.VALIDATION_ERROR, acts_as="agent_id", read_only=True, quick=True)
def inbox_count(p: InboxCount, caller: Caller) -> selectors.LaneSizes:
    """How much mail you have: the cheap check."""
    return selectors.lane_sizes(p.agent_id, now())


class InboxHistory(Trusted):
    cursor: Annotated[str | None, Terse(), Field(description="next_cursor of the previous page, unchanged.")] = None
    limit: PageSize = None


class HistoryPage(TypedDict):
    messages: list[InboxRow]
    next_cursor: str | None
    has_more: bool


@operation(InboxHistory, *TRUST_ERRORS, acts_as="agent_id", requires=(in_session("session_id"),), read_only=True)
def inbox_history(p: InboxHistory, caller: Caller) -> HistoryPage:
    """Your acknowledged messages, newest first."""
    page = selectors.history(p.agent_id, page_size(p.limit), p.cursor)
    return {
        "messages": _rows(page.deliveries),
        "next_cursor": page.next_cursor,
        "has_more": page.next_cursor is not None,
    }


class MessageStatus(Params):
    message_id: Id


class MessageDeliveries(TypedDict):
    message_id: str
    deliveries: list[RecipientRow]
    count: int


@operation(MessageStatus, Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.NOT_OWNER, read_only=True)
def message_status(p: MessageStatus, caller: Caller) -> MessageDeliveries:
    """Where a message you sent stands with each recipient. Look here instead of sending again."""
    _, deliveries = _sent_by(caller, p.message_id)
    moment = now()
    return {
        "message_id": p.message_id,
        "deliveries": [recipient_row(delivery, moment) for delivery in deliveries],
        "count": len(deliveries),
    }


class MessageReceipts(TypedDict):
    message_id: str
    expected: NotRequired[receipts.Expected]
    receipts: list[receipts.Receipt]
    count: int


@operation(MessageStatus, Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.NOT_OWNER, read_only=True, advertised=False)
def message_receipts(p: MessageStatus, caller: Caller) -> MessageReceipts:
    """How far a message you sent has come with each recipient (stored, noticed, handed over, acknowledged, acted on),
    with the time and the evidence of each stage, or what it waits for. Shows the first 200 recipients of count."""
    message, deliveries = _sent_by(caller, p.message_id)
    data: MessageReceipts = {
        "message_id": p.message_id,
        "receipts": [receipts.receipt_row(*each) for each in receipts.steps(message, deliveries[:MAX_LIMIT])],
        "count": len(deliveries),
    }
    return {**data, "expected": receipts.expected_row(message)} if message.expect else data


def _sent_by(caller: Caller, message_id: str) -> tuple[Message, list[Delivery]]:
    """Return a message and its deliveries. Raises NOT_FOUND, NOT_OWNER for an agent that did not send it."""
    message, deliveries = selectors.deliveries_of(message_id)
    if caller.agent_id is not None and caller.agent_id != message.from_agent_id:
        raise NexusError(Code.NOT_OWNER, "Only the sender of a message may follow it.", {"message_id": message_id})
    return message, deliveries


def page_size(limit: int | None) -> int:
    """Return the requested page size, within the maximum."""
    return min(limit or DEFAULT_LIMIT, MAX_LIMIT)


def _as_list(message_ids: str | list[str]) -> list[str]:
    return [message_ids] if isinstance(message_ids, str) else message_ids


def _messages(deliveries: list[Delivery]) -> InboxPage:
    return {"messages": _rows(deliveries), "count": len(deliveries)}


def _rows(deliveries: list[Delivery]) -> list[InboxRow]:
    moment = now()
    behalf = on_behalf_of(delivery.message for delivery in deliveries)
    return [inbox_row(delivery, moment, behalf) for delivery in deliveries]


# What reading by message became: shims that answer every call shape with the way to go.


class Shim(Params):
    """No parameters are declared, and any are taken."""


def _migrated(tool: str, *ways: str) -> NexusError:
    replacements = [name for way in ways for name in way.split(", then ")]
    return NexusError(
        InboxCode.MIGRATED,
        f"{tool} was removed. Call {', or '.join(ways)} instead.",
        {"replacements": replacements, "removed_in": "S3"},
    )


@operation(Shim, InboxCode.MIGRATED, accepts_anything=True, read_only=True)
def message_get(p: Shim, caller: Caller) -> Never:
    """Removed: use inbox_pull, inbox_peek or inbox_history."""
    raise _migrated("message_get", "inbox_pull", "inbox_peek", "inbox_history", "event_get")


@operation(Shim, InboxCode.MIGRATED, accepts_anything=True, read_only=True)
def message_list(p: Shim, caller: Caller) -> Never:
    """Removed: use inbox_peek, inbox_history or event_get."""
    raise _migrated("message_list", "inbox_peek", "inbox_history", "event_get")


@operation(Shim, InboxCode.MIGRATED, accepts_anything=True, read_only=True)
def message_wait(p: Shim, caller: Caller) -> Never:
    """Removed: use inbox_count then inbox_pull, or event_wait."""
    raise _migrated("message_wait", "inbox_count, then inbox_pull", "event_wait")


async def pending_mail(caller: Caller, agent_id: str) -> Data:
    """Return the counts of an agent's inbox and its pending mail, without taking any. Raises NOT_OWNER for another
    agent's.

    A read of a resource carries no session: in strict trust the connection must be bound to the agent by its key.
    Raises VALIDATION_ERROR where it is not.
    """
    caller = replace(caller, vouched=caller.agent_id is not None)
    counts = await dispatch.aperform(COORDINATION, caller, "inbox_count", {"agent_id": agent_id})
    mail = await dispatch.aperform(COORDINATION, caller, "inbox_peek", {"agent_id": agent_id})
    return {**counts.result(), **mail.result()}


def recipients_of_event(event: Event) -> Sequence[str]:
    """Return the agents whose inbox an event changed."""
    return cast(Sequence[str], event.payload.get("recipients", ())) if event.type in ARRIVALS else ()


def record_push(agent_id: str, events: Sequence[Event], how: str) -> None:
    """Record that the mail which these events brought was announced to its recipient."""
    receipts.notice(agent_id, [event.payload["message_id"] for event in events], how)


COORDINATION.references.append(
    Reference(
        "nexus://reference/delivery",
        "delivery",
        "States, leases and dead letters of the inbox.",
        packaged("inbox", "delivery"),
    )
)
INBOX = AgentResource(
    "nexus://inbox/",
    "inbox",
    "Pending mail of an agent. Subscribe to be notified when mail arrives.",
    pending_mail,
    recipients_of_event,
    record_push,
)
COORDINATION.agent_resources.append(INBOX)
