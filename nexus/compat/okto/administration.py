"""The operation behind okto-nexus's live graph: agents, and what goes between them."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.db.models import Count, Max, Q
from django.db.models.functions import Coalesce
from pydantic import Field
from typing_extensions import TypedDict

from coordination.ids import id_floor
from coordination.log.selectors import recent_events
from coordination.models import AgentKey, Channel
from coordination.presence import Presence, agent_states
from coordination.rows import ChannelRow, channel_row
from coordination.services import workspaces
from coordination.toolset import operation
from handoffs.models import Handoff
from handoffs.rows import HandoffRow, handoff_row
from inbox.models import Delivery, DeliveryStatus
from inbox.monitoring import inboxes
from nexus.core.clock import iso, now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Params, Time, one_of
from nexus.core.operations.registry import OPERATORS_ONLY

EDGES, HANDOFFS, CHANNELS = 2_000, 1_000, 500  # at most, as there
WAITING = (DeliveryStatus.UNREAD, DeliveryStatus.DELIVERED)
ACTS = 1_000  # events, the newest, that the last acts are looked up in


class AgentGraph(Params):
    workspace_id: Annotated[Id | None, Field(description="Of the edges; the agents are those of all.")] = None
    window_hours: Annotated[int, Field(ge=1, le=24 * 366, description="How far back messages count.")] = 24


class LastAct(TypedDict):
    type: str
    at: Time


class InboxCounts(TypedDict):
    unread: int
    delivered: int
    read: int
    parked: int


class Node(TypedDict):
    agent_id: str
    role: str | None
    capabilities: Any
    is_active: bool
    has_key: bool
    last_seen_at: Time | None
    last_action: LastAct | None
    presence: Annotated[str, one_of(Presence)]
    sessions: Annotated[int, Field(description="The active ones.")]
    inbox: InboxCounts
    pending_inbox: Annotated[int, Field(description="Of messages of the workspace.")]
    open_handoffs: Annotated[int, Field(description="That it created, and that it holds.")]


class InFlight(TypedDict):
    unread: int
    delivered: int


# "from" is no name in Python
MessageEdge = TypedDict(
    "MessageEdge",
    {"from": str, "to": str, "count": int, "last_at": Time, "in_flight": InFlight, "last_done_at": Time | None},
)


class Edges(TypedDict):
    messages: list[MessageEdge]
    handoffs: Annotated[list[HandoffRow], Field(description="That are not settled, the newest first.")]


class Graph(TypedDict):
    workspace_id: str | None
    generated_at: Time
    window_hours: int
    nodes: list[Node]
    channels: list[ChannelRow]
    edges: Edges


@operation(
    AgentGraph,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    requires=(OPERATORS_ONLY,),
    tool=False,
    read_only=True,
    slow=True,
)
def agent_graph(p: AgentGraph, caller: Caller) -> Graph:
    """Agents with their presence and inboxes, and the messages and handoffs between them, as the graph of okto-nexus
    has them."""
    moment = now()
    where = {} if p.workspace_id is None else {"workspace_id": workspaces.require(p.workspace_id).pk}
    of_message = {f"message__{name}": value for name, value in where.items()}
    unread = Q(status=DeliveryStatus.UNREAD) | Q(lease_expires_at__lt=moment)
    sent = Delivery.objects.filter(message_id__gte=id_floor("msg", moment - timedelta(hours=p.window_hours)))
    flows = sent.filter(**of_message).values_list("message__from_agent_id", "recipient_id").annotate(
        count=Count("pk"),
        last=Max("message__created_at"),
        unread=Count("pk", filter=unread),
        delivered=Count("pk", filter=Q(status=DeliveryStatus.DELIVERED) & ~unread),
        done=Max(Coalesce("read_at", "delivered_at")),
    ).order_by("-count", "-last")[:EDGES]  # fmt: skip
    live = Handoff.objects.live().filter(**where)
    channels = Channel.objects.filter(**where).order_by("created_at", "pk")[:CHANNELS]
    return {
        "workspace_id": p.workspace_id,
        "generated_at": iso(moment),
        "window_hours": p.window_hours,
        "nodes": _nodes(moment, where, of_message),
        "channels": [channel_row(row) for row in channels],
        "edges": {
            "messages": [
                {
                    "from": sender,
                    "to": recipient,
                    "count": count,
                    "last_at": iso(last),
                    "in_flight": {"unread": waiting, "delivered": leased},
                    "last_done_at": iso(done),
                }
                for sender, recipient, count, last, waiting, leased, done in flows
            ],
            "handoffs": [handoff_row(row, moment) for row in live.order_by("-created_event_id")[:HANDOFFS]],
        },
    }


def _nodes(moment: datetime, where: dict[str, str], of_message: dict[str, str]) -> list[Node]:
    mail = inboxes(moment)
    read = _by_recipient(status=DeliveryStatus.READ)
    pending = _by_recipient(status__in=WAITING, **of_message)
    live = Handoff.objects.live().filter(**where)
    handoffs = Counter(agent for pair in live.values_list("from_agent_id", "claimed_by") for agent in pair)
    keys = dict(AgentKey.objects.values_list("agent_id", "is_active"))
    acts: dict[str | None, LastAct] = {}
    for event in recent_events(ACTS, **where):
        acts.setdefault(event.actor_agent_id, {"type": event.type, "at": iso(event.created_at)})
    nodes: list[Node] = []
    for state in agent_states(moment):
        agent_id, inbox = state.agent_id, mail.get(state.agent_id)
        nodes.append(
            {
                "agent_id": agent_id,
                "role": state.agent.role,
                "capabilities": state.agent.capabilities or {},
                "is_active": keys.get(agent_id, True),
                "has_key": agent_id in keys,
                "last_seen_at": iso(state.last_act),
                "last_action": acts.get(agent_id),
                "presence": state.presence,
                "sessions": state.sessions,
                "inbox": {
                    "unread": inbox.unread if inbox else 0,
                    "delivered": inbox.in_flight if inbox else 0,
                    "read": read.get(agent_id, 0),
                    "parked": inbox.parked if inbox else 0,
                },
                "pending_inbox": pending.get(agent_id, 0),
                "open_handoffs": handoffs[agent_id],
            }
        )
    return nodes


def _by_recipient(**chosen: Any) -> dict[str, int]:
    rows = Delivery.objects.filter(**chosen).order_by().values_list("recipient_id")
    return dict(rows.annotate(Count("pk")))
