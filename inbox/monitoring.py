"""The reads behind the operators' pages: counts, traffic and the mail of all agents."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from django.db.models import Case, Count, Exists, F, Min, OuterRef, Q, QuerySet, Value, When

from coordination.ids import id_floor, time_of_id
from coordination.models import Agent, Workspace
from coordination.presence import AgentState, agent_states, agents_in
from inbox.models import PENDING, Delivery, DeliveryStatus, Message
from nexus.core.database.functions import IntegerPart, Seconds

NEWEST = 5_000  # sends to one agent that a traffic map looks at, so that its cost has a ceiling
SENDS = 2_000  # and a timeline, which tells of each when it was


T = TypeVar("T")


@dataclass(frozen=True)
class Inbox:
    """Counts of one agent's inbox; an expired lease counts as unread."""

    unread: int = 0
    in_flight: int = 0
    parked: int = 0
    oldest_unread: datetime | None = None


def inbox_of(agent_id: str, moment: datetime) -> Inbox:
    """Return the counts of one agent's inbox."""
    return inboxes(moment, [agent_id]).get(agent_id, Inbox())


def inboxes(moment: datetime, agents: Collection[str] | None = None) -> dict[str, Inbox]:
    """Return the counts of inboxes that hold pending mail, of some agents or of all, by agent. Acknowledged mail, by
    far the most, is not counted."""
    recipients: Any = Agent.everyone.values("pk") if agents is None else agents
    among = Delivery.objects.filter(recipient__in=recipients)
    counted: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    for status in PENDING:  # one at a time: the index of pending mail answers for one status, and for a list not
        rows = among.filter(status=status).values_list("recipient_id").annotate(Count("pk"), Min("delivery_id"))
        for agent_id, count, oldest in rows.order_by():
            counted[agent_id][status] = (count, oldest)
    lapsed = among.lapsed(moment).values_list("recipient_id").annotate(Count("pk")).order_by()
    again = dict(lapsed)
    nothing = (0, "")
    found = {}
    for agent_id, by_status in counted.items():
        waiting, oldest = by_status.get(DeliveryStatus.UNREAD, nothing)
        found[agent_id] = Inbox(
            unread=waiting + again.get(agent_id, 0),
            in_flight=by_status.get(DeliveryStatus.DELIVERED, nothing)[0] - again.get(agent_id, 0),
            parked=by_status.get(DeliveryStatus.PARKED, nothing)[0],
            oldest_unread=time_of_id(oldest) if oldest else None,
        )
    return found


def per_minute(moment: datetime, minutes: int = 60, *, workspace_id: str | None = None) -> list[int]:
    """Count the messages sent in each of the last `minutes` minutes, oldest first."""
    first = moment.replace(second=0, microsecond=0) - timedelta(minutes=minutes - 1)
    since, until = id_floor("msg", first), id_floor("msg", first + timedelta(minutes=minutes))
    sent = Message.objects.filter(pk__gte=since, pk__lt=until).order_by()
    if workspace_id:
        sent = sent.filter(workspace_id=workspace_id)
    minute = IntegerPart((Seconds(F("created_at")) - Value(first.timestamp())) / Value(60.0))
    counted = dict(sent.values_list(minute).annotate(Count("pk")))
    return [counted.get(i, 0) for i in range(minutes)]


class Flow(NamedTuple):
    """The messages from one agent to another within a window, and how many of them are unread."""

    sender: str
    recipient: str
    messages: int
    unread: int


def flows(since: datetime, moment: datetime, *, workspace_id: str | None = None) -> list[Flow]:
    """Return the traffic between agents since a moment, busiest first, from the newest deliveries of that time."""
    lapsed = Q(deliveries__status=DeliveryStatus.DELIVERED, deliveries__lease_expires_at__lt=moment)
    waits = Case(When(Q(deliveries__status=DeliveryStatus.UNREAD) | lapsed, then=1), default=0)
    newest = _reached(since, workspace_id).values_list("from_agent_id", "deliveries__recipient_id", waits)[:NEWEST]
    sent: Counter[tuple[str, str]] = Counter()
    unread: Counter[tuple[str, str]] = Counter()
    for sender, recipient, waiting in newest:
        sent[sender, recipient] += 1
        unread[sender, recipient] += waiting
    found = (Flow(*pair, messages, unread[pair]) for pair, messages in sent.items())
    return sorted(found, key=lambda flow: (-flow.messages, flow.sender, flow.recipient))


def _reached(since: datetime, workspace_id: str | None) -> QuerySet[Message]:
    """Return the messages since a moment, once for each recipient, newest first."""
    rows = Message.objects.filter(pk__gte=id_floor("msg", since), deliveries__recipient__isnull=False)
    if workspace_id:
        rows = rows.filter(workspace_id=workspace_id)
    return rows.order_by("-message_id")


def with_status(rows: QuerySet[Message], status: str) -> QuerySet[Message]:
    """Return the messages with a delivery in a status, or with none at all for `nobody`."""
    if status == "nobody":
        return rows.filter(recipients_count=0)
    if status == DeliveryStatus.READ:  # most of all mail there ever was: of the newest, not a list of all
        return rows.filter(Exists(Delivery.objects.filter(message=OuterRef("pk"), status=status)))
    return rows.filter(pk__in=Delivery.objects.filter(status=status).values("message_id"))


def sent_or_received(rows: QuerySet[Message], agent_id: str) -> QuerySet[Message]:
    """Return the messages that an agent sent, and those that it received."""
    received = Delivery.objects.of(agent_id)
    return rows.filter(Q(from_agent_id=agent_id) | Q(pk__in=received.values("message_id")))


def newest_of(rows: QuerySet[Message], agent_id: str, before: str, limit: int) -> QuerySet[Message]:
    """Return the newest messages that an agent sent and the newest that it received, before a message; the rest is not
    read."""
    older = {"message_id__lt": before} if before else {}
    sent = Message.objects.filter(from_agent_id=agent_id, **older).order_by("-message_id").values("message_id")
    received = Delivery.objects.of(agent_id).filter(**older).order_by("-message_id").values("message_id")
    return rows.filter(Q(pk__in=sent[:limit]) | Q(pk__in=received[:limit]))


def deliveries_for(messages: Iterable[Message]) -> dict[str, list[Delivery]]:
    """Return the deliveries of several messages, by message id."""
    found: dict[str, list[Delivery]] = {message.message_id: [] for message in messages}
    for delivery in Delivery.objects.filter(message_id__in=found).order_by("recipient_id"):
        found[delivery.message_id].append(delivery)
    return found


def thread(message: Message, limit: int = 200) -> list[Message]:
    """Return the conversation of a message, oldest first; of a long one, the message and its nearest relatives.

    One step leads from a message to the one it answers, or to its answers. Bodies are not loaded.
    """
    found = {message.message_id: message}
    edge = [message]
    while edge and len(found) < limit:
        around = Q(parent__in=[row.pk for row in edge]) | Q(pk__in=[row.parent_id for row in edge if row.parent_id])
        unseen = Message.objects.defer("body").filter(around).exclude(pk__in=list(found)).order_by("message_id")
        edge = list(unseen[: limit - len(found)])
        found |= {row.message_id: row for row in edge}
    return sorted(found.values(), key=lambda row: row.message_id)


def between(agent_id: str, peer_id: str, limit: int) -> list[Delivery]:
    """Return the newest deliveries between two agents, without bodies."""
    rows = Delivery.objects.filter(
        Q(recipient_id=agent_id, message__from_agent_id=peer_id)
        | Q(recipient_id=peer_id, message__from_agent_id=agent_id)
    )
    return list(rows.select_related("message").defer("message__body").order_by("-delivery_id")[:limit])


Send = tuple[str, str, datetime]  # from whom, to whom, when


def sends(since: datetime, until: datetime, *, workspace_id: str | None = None) -> tuple[list[Send], bool]:
    """Return sender, recipient and time of the newest deliveries within a window, and whether there were more."""
    rows = _reached(since, workspace_id).filter(pk__lt=id_floor("msg", until))
    found = list(rows.values_list("from_agent_id", "deliveries__recipient_id", "created_at")[:SENDS])
    return found, len(found) == SENDS


def sent_between(sender: str, recipient: str, since: datetime, until: datetime, limit: int) -> list[Delivery]:
    """Return the deliveries from one agent to another within a window, oldest first, without bodies."""
    rows = Delivery.objects.of(recipient).filter(
        message_id__gte=id_floor("msg", since), message_id__lt=id_floor("msg", until), message__from_agent_id=sender
    )
    return list(rows.select_related("message").defer("message__body").order_by("message_id")[:limit])


class Picture:
    """The team at a moment, read once and shared by everything that asks what needs a person: everywhere, or with a
    workspace there alone. What belongs to no workspace, such as the disk, is part of each."""

    def __init__(self, moment: datetime, workspace: Workspace | None = None) -> None:
        self.moment = moment
        self.workspace = workspace
        self._read: dict[Callable[[Picture], Any], Any] = {}

    @cached_property
    def agents(self) -> list[AgentState]:
        """Every agent with its presence."""
        return agent_states(self.moment)

    @cached_property
    def team(self) -> frozenset[str]:
        """The ids of the agents that it is about: of all, or those that have, or had, a session in the workspace."""
        if self.workspace is None:
            return frozenset(state.agent_id for state in self.agents)
        return frozenset(agents_in(self.workspace.pk))

    def includes(self, workspace_id: str | None) -> bool:
        """Return whether it is about this workspace; about None, the whole hub, it always is."""
        return self.workspace is None or workspace_id in (None, self.workspace.pk)

    @cached_property
    def inboxes(self) -> dict[str, Inbox]:
        """Every inbox that holds mail which is not done with, by agent."""
        return inboxes(self.moment)

    def once(self, read: Callable[[Picture], T]) -> T:
        """What `read` makes of it; read once, however many ask."""
        if read not in self._read:
            self._read[read] = read(self)
        found: T = self._read[read]
        return found
