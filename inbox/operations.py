"""What this app offers: sending, receiving and following messages."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from coordination.guards import in_session
from coordination.parameters import IN_WORKSPACE, ProjectRoot, SessionId, SessionSecret
from coordination.toolset import operation
from core.clock import iso, now
from core.operations.caller import Caller
from core.operations.errors import Code, NexusError
from core.operations.parameters import MAX_IDS_A_CALL, Id, Limit, Params
from core.operations.replies import Data
from inbox import lanes, selectors, services
from inbox.errors import InboxCode
from inbox.models import Delivery

DEFAULT_LIMIT, MAX_LIMIT = 50, 200
TRUST_ERRORS = (Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.NOT_OWNER)

SomeIds = Annotated[list[Id], Field(min_length=1, max_length=MAX_IDS_A_CALL)]
AnyIds = Annotated[list[Id], Field(max_length=MAX_IDS_A_CALL)]
IDS = Field(description="One message_id or a list of them.")
PageSize = Annotated[Limit | None, Field(description=f"{DEFAULT_LIMIT} by default, {MAX_LIMIT} at most.")]


class MessageCreate(Params):
    project_root: ProjectRoot
    from_agent_id: Annotated[Id, Field(description="You.")]
    subject: str
    body: Annotated[str, Field(description="Up to 64 KiB; larger: artifact_put.")]
    channel_id: Annotated[Id | None, Field(description="A label, from channel_list.")] = None
    from_session_id: SessionId = None
    target: Annotated[
        dict[str, Any] | None,
        Field(
            description='{"strategy":"direct","agent_id":"…"}; or role, capability, mixed: nexus://reference/targets. '
            "Omitted: a broadcast."
        ),
    ] = None
    artifacts: Annotated[list[Id] | None, Field(max_length=MAX_IDS_A_CALL, description="artifact_ids.")] = None
    parent_message_id: Annotated[Id | None, Field(description="The message you answer.")] = None
    session_secret: SessionSecret = None


@operation(
    MessageCreate,
    *IN_WORKSPACE,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_FOUND,
    Code.NOT_OWNER,
    acts_as="from_agent_id",
    guards=(in_session("from_session_id"),),
)
def message_create(p: MessageCreate, caller: Caller) -> Data:
    """Send a message into the inbox of every agent the target names. Answer whoever wrote to you with a direct target;
    broadcast only information or open questions, never tasks (use handoff_create). recipients tells whom it reached,
    excluded_stale whom it did not."""
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
    )
    message = sent.message
    data: dict[str, Any] = {
        "message_id": message.message_id,
        "workspace_id": message.workspace_id,
        "from_agent_id": message.from_agent_id,
        "from_session_id": message.from_session_id,
        "channel_id": message.channel_id,
        "parent_message_id": message.parent_id,
        "target": message.target,
        "subject": message.subject,
        "body": message.body,
        "artifacts": message.artifacts,
        "created_at": iso(message.created_at),
        "event_id": sent.event_id,
        "recipients": sent.recipients,
        "delivered_count": len(sent.recipients),
    }
    if sent.workspace_created:
        data["workspace_created"] = True
    if sent.excluded_stale:
        data["excluded_stale"] = sent.excluded_stale
    if warning := _warning(sent):
        data["warning"] = warning
    return data


def _warning(sent: services.Sent) -> str | None:
    if sent.excluded_stale:
        return "Agents with no recent heartbeat did not get this broadcast; reach those in excluded_stale directly."
    return None if sent.recipients else "The target matched no agent: nobody received this message."


class Trusted(Params):
    """An agent at its own inbox."""

    agent_id: Id
    session_id: SessionId = None
    session_secret: SessionSecret = None


class InboxPull(Trusted):
    limit: PageSize = None
    lease_seconds: Annotated[
        int | None, Field(description="Time to handle and ack them: 10 to 3600, 300 by default.")
    ] = None


@operation(InboxPull, *TRUST_ERRORS, acts_as="agent_id", guards=(in_session("session_id"),))
def inbox_pull(p: InboxPull, caller: Caller) -> Data:
    """Receive your mail with its bodies, leased to you. inbox_ack what you handled before the lease ends, or it comes
    again; after 5 hand-outs without an ack it is parked."""
    pulled = services.pull(agent_id=p.agent_id, limit=page_size(p.limit), lease_seconds=p.lease_seconds)
    return _messages(pulled)


class InboxAck(Trusted):
    message_ids: Annotated[Id | AnyIds, IDS]


@operation(InboxAck, *TRUST_ERRORS, acts_as="agent_id", guards=(in_session("session_id"),), idempotent=True)
def inbox_ack(p: InboxAck, caller: Caller) -> Data:
    """Tell that you have handled messages: they move to history and do not come again."""
    return {"acknowledged": services.acknowledge(agent_id=p.agent_id, message_ids=_listed(p.message_ids))}


class InboxExtend(Trusted):
    message_ids: Annotated[Id | SomeIds, IDS]
    extend_seconds: Annotated[int, Field(description="The lease from now: 10 to 3600.")]


@operation(InboxExtend, *TRUST_ERRORS, acts_as="agent_id", guards=(in_session("session_id"),))
def inbox_extend(p: InboxExtend, caller: Caller) -> Data:
    """Renew the lease on pulled messages that take longer; all of them or none."""
    count, until = services.extend(
        agent_id=p.agent_id, message_ids=_listed(p.message_ids), extend_seconds=p.extend_seconds
    )
    return {"extended": count, "lease_expires_at": iso(until)}


class InboxPeek(Params):
    agent_id: Id
    limit: PageSize = None
    include_parked: bool = False


@operation(InboxPeek, Code.VALIDATION_ERROR, acts_as="agent_id", read_only=True)
def inbox_peek(p: InboxPeek, caller: Caller) -> Data:
    """Look at pending mail, bodies included, without taking it; include_parked shows dead letters too."""
    return _messages(selectors.pending(p.agent_id, page_size(p.limit), include_parked=p.include_parked))


class InboxCount(Params):
    agent_id: Id


@operation(InboxCount, Code.VALIDATION_ERROR, acts_as="agent_id", read_only=True)
def inbox_count(p: InboxCount, caller: Caller) -> Data:
    """How much mail you have: {unread, in_flight, read}. The cheap check between turns."""
    return selectors.lane_sizes(p.agent_id, now())


class InboxHistory(Params):
    agent_id: Id
    cursor: Annotated[str | None, Field(description="next_cursor of the page before, verbatim.")] = None
    limit: PageSize = None


@operation(InboxHistory, Code.VALIDATION_ERROR, acts_as="agent_id", read_only=True)
def inbox_history(p: InboxHistory, caller: Caller) -> Data:
    """Your acknowledged messages, newest first."""
    page = selectors.history(p.agent_id, page_size(p.limit), p.cursor)
    messages = [delivery_data(delivery) for delivery in page.deliveries]
    return {"messages": messages, "next_cursor": page.next_cursor, "has_more": page.next_cursor is not None}


class MessageStatus(Params):
    message_id: Id


@operation(MessageStatus, Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.NOT_OWNER, read_only=True)
def message_status(p: MessageStatus, caller: Caller) -> Data:
    """Where a message you sent stands with each recipient: unread, delivered (in flight), read or parked. Look here
    instead of sending again."""
    message, deliveries = selectors.deliveries_of(p.message_id)
    if caller.agent_id is not None and caller.agent_id != message.from_agent_id:
        raise NexusError(Code.NOT_OWNER, "Only the sender of a message may follow it.", {"message_id": p.message_id})
    moment = now()
    return {
        "message_id": p.message_id,
        "deliveries": [
            {
                "recipient": delivery.recipient_id,
                "status": lanes.effective(delivery.status, delivery.lease_expires_at, moment),
                "attempts": delivery.attempts,
                "read_at": iso(delivery.read_at),
            }
            for delivery in deliveries
        ],
        "count": len(deliveries),
    }


def page_size(limit: int | None) -> int:
    """The page size that a call asked for, within the maximum."""
    return min(limit or DEFAULT_LIMIT, MAX_LIMIT)


def _listed(message_ids: str | list[str]) -> list[str]:
    return [message_ids] if isinstance(message_ids, str) else message_ids


def _messages(deliveries: list[Delivery]) -> Data:
    return {"messages": [delivery_data(delivery) for delivery in deliveries], "count": len(deliveries)}


def delivery_data(delivery: Delivery) -> Data:
    message = delivery.message
    return {
        "delivery_id": delivery.delivery_id,
        "message_id": message.message_id,
        "status": lanes.effective(delivery.status, delivery.lease_expires_at, now()),
        "delivered_at": iso(delivery.delivered_at),
        "lease_expires_at": iso(delivery.lease_expires_at),
        "read_at": iso(delivery.read_at),
        "from_agent_id": message.from_agent_id,
        "workspace_id": message.workspace_id,
        "channel_id": message.channel_id,
        "parent_message_id": message.parent_id,
        "subject": message.subject,
        "body": message.body,
        "target": message.target,
        "artifacts": message.artifacts,
        "created_at": iso(message.created_at),
    }


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
def message_get(p: Shim, caller: Caller) -> Data:
    """Removed: use inbox_pull, inbox_peek or inbox_history."""
    raise _migrated("message_get", "inbox_pull", "inbox_peek", "inbox_history", "event_get")


@operation(Shim, InboxCode.MIGRATED, accepts_anything=True, read_only=True)
def message_list(p: Shim, caller: Caller) -> Data:
    """Removed: use inbox_peek, inbox_history or event_get."""
    raise _migrated("message_list", "inbox_peek", "inbox_history", "event_get")


@operation(Shim, InboxCode.MIGRATED, accepts_anything=True, read_only=True)
def message_wait(p: Shim, caller: Caller) -> Data:
    """Removed: use inbox_count then inbox_pull, or event_wait."""
    raise _migrated("message_wait", "inbox_count, then inbox_pull", "event_wait")
