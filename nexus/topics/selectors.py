"""The reads of topics. Those of the operators' pages are bounded however long a topic is, and move no cursor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from operator import or_

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Coalesce, Left, Length

from coordination.models import Agent
from nexus.core.clock import now
from nexus.topics import naming, sql
from nexus.topics.models import Peer, Topic, TopicMessage, TopicStatus
from nexus.topics.toolset import no_topic

LONGEST_WINDOW = 36_500 * 86_400  # seconds


def get_topic(topic_id: str) -> Topic:
    """Return a topic. Raises TOPIC_NOT_FOUND."""
    topic = sql.topic.first(topic_id=topic_id)
    if topic is None:
        raise no_topic(topic_id)
    return topic


def topic_named(name: str, *, allow_closed: bool = False) -> Topic | None:
    """Return the newest open topic of a name; if there is none and it is allowed, the newest closed one."""
    topics = Topic.objects.filter(name=name).newest_first()
    newest = topics.open().first()
    return newest or (topics.first() if allow_closed else None)


def with_status(status: str) -> QuerySet[Topic]:
    """Return the topics in a state, or `all`, newest first."""
    topics = Topic.objects.newest_first()
    return topics if status == "all" else topics.filter(status=TopicStatus(status))


def overview(status: str, *, limit: int) -> list[tuple[Topic, int]]:
    """Return the newest topics in a state, or `all`, each with its number of reserved names."""
    topics = list(with_status(status)[:limit])
    counted = Peer.objects.filter(topic__in=topics).values_list("topic").annotate(Count("pk")).order_by()
    peers = dict(counted)
    return [(topic, peers.get(topic.topic_id, 0)) for topic in topics]


def peer(topic_id: str, agent_name: str) -> Peer | None:
    """Return a peer of a topic."""
    return sql.peer.first(topic_id=topic_id, agent_name=agent_name)


def present(topic_id: str, *, window_seconds: int, limit: int) -> list[Peer]:
    """Return the peers that synced within the window, latest first."""
    since = now() - timedelta(seconds=min(window_seconds, LONGEST_WINDOW))
    return list(Peer.objects.filter(topic_id=topic_id).present(since)[:limit])


def behind(peer: Peer, *, include_self: bool, limit: int) -> list[TopicMessage]:
    """Return the next messages after a peer's cursor, oldest first."""
    if include_self:
        return page(peer.topic_id, after=peer.last_seq, limit=limit)
    here = {"topic_id": peer.topic_id, "agent_name": peer.agent_name}
    return sql.messages_of_others(**here, after=peer.floor, limit=limit)


def page(topic_id: str, *, after: int, limit: int) -> list[TopicMessage]:
    """Return the messages of a topic after a sequence number, oldest first."""
    return sql.messages(topic_id=topic_id, after=after, limit=limit)


def newest(topic_id: str, *, limit: int, before: int | None = None) -> list[TopicMessage]:
    """Return the newest messages of a topic, oldest first; before a sequence number if one is given."""
    messages = TopicMessage.objects.filter(topic_id=topic_id)
    if before is not None:
        messages = messages.filter(seq__lt=before)
    return list(messages.order_by("-seq")[:limit])[::-1]


def count_replies(message: TopicMessage) -> int:
    """Return how many replies a message has, with the replies to those, and so on."""
    [(count,)] = sql.count_thread(topic_id=message.topic_id, message_id=message.message_id)
    return count - 1


def taken_names(topic_id: str) -> set[str]:
    """Return every name that is reserved in a topic."""
    return set(Peer.objects.filter(topic_id=topic_id).values_list("agent_name", flat=True))


PRESENT = timedelta(seconds=300)  # since a peer's last sync, as in topic_presence
MOST_PEERS = 1_000  # the most that a page reads
NEAR = 20  # up to so many messages behind, a peer's own are not counted
EXCERPT = 4_000  # characters of a message that a page shows unless asked for all
CONTEXT = 5  # messages shown before the requested one
ANSWERS = 20  # links to the answers of a message, on average over a page


@dataclass(frozen=True)
class Reader:
    """A peer as an operator sees it."""

    peer: Peer
    behind: int  # messages of others that it has not received; beyond NEAR its own are counted, too
    present: bool


@dataclass(frozen=True)
class TopicPage:
    """A part of a topic, oldest first, and whether there are earlier and later messages."""

    messages: list[TopicMessage]
    earlier: bool
    later: bool


@dataclass(frozen=True)
class Exchange:
    """The message that a message answers, and the answers to it."""

    answered: TopicMessage | None = None
    answers: list[TopicMessage] = field(default_factory=list)


def count_peers(topics: Sequence[Topic]) -> dict[str, int]:
    """Return the number of names that joined, by topic_id."""
    return dict(Peer.objects.filter(topic__in=topics).values_list("topic").annotate(Count("pk")).order_by())


def readers(topics: Sequence[Topic], moment: datetime) -> dict[str, list[Reader]]:
    """Return the peers of some topics, latest first, by topic_id."""
    last = {topic.topic_id: topic.last_seq for topic in topics}
    senders = _latest_senders(topics)
    found: dict[str, list[Reader]] = defaultdict(list)
    rows = Peer.objects.filter(topic__in=topics)
    for peer in rows.order_by(Coalesce("synced_at", "created_at").desc(), "agent_name")[:MOST_PEERS]:
        behind = max(last[peer.topic_id] - peer.floor, 0)
        if behind <= NEAR:
            after = senders[peer.topic_id]
            behind = sum(1 for seq, sender in after if seq > peer.floor and sender != peer.agent_name)
        present = peer.synced_at is not None and peer.synced_at > moment - PRESENT
        found[peer.topic_id].append(Reader(peer, behind, present))
    return found


def _latest_senders(topics: Sequence[Topic]) -> dict[str, list[tuple[int, str]]]:
    """Return the sequence numbers and senders of the last NEAR messages, by topic_id."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    if topics:
        ends = (Q(topic=topic, seq__gt=topic.last_seq - NEAR) for topic in topics)
        for topic_id, seq, sender in TopicMessage.objects.filter(reduce(or_, ends)).values_list(
            "topic_id", "seq", "sender"
        ):
            found[topic_id].append((seq, sender))
    return found


def stream(topic: Topic, *, at: int | None = None, before: int | None = None, limit: int) -> TopicPage:
    """Return the newest messages of a topic, those before a sequence number, or those around one. Bodies are
    excerpts."""
    rows = excerpts(topic.topic_id)
    if at is not None:
        first = at - CONTEXT
        found = list(rows.filter(seq__gte=first).order_by("seq")[: limit + 1])
        if len(found) > limit:
            return TopicPage(found[:limit], rows.filter(seq__lt=first).exists(), later=True)
        before = None  # the newest messages contain it
    if before is not None:
        rows = rows.filter(seq__lt=before)
    found = list(rows.order_by("-seq")[: limit + 1])
    later = before is not None and excerpts(topic.topic_id).filter(seq__gte=before).exists()
    return TopicPage(found[:limit][::-1], len(found) > limit, later)


def newer(topic_id: str, *, after: int, limit: int) -> list[TopicMessage]:
    """Return the messages after a sequence number, oldest first. Bodies are excerpts."""
    return list(excerpts(topic_id).filter(seq__gt=after).order_by("seq")[:limit])


def excerpts(topic_id: str) -> QuerySet[TopicMessage]:
    """Return the messages of a topic, each with its `excerpt` and its `length` in place of the body."""
    body = "content_markdown"
    rows = TopicMessage.objects.filter(topic_id=topic_id).defer(body)
    return rows.annotate(excerpt=Left(body, EXCERPT), length=Length(body))


def exchanges(topic_id: str, messages: Sequence[TopicMessage]) -> dict[str, Exchange]:
    """Return, by message_id, the message that each one answers, if it still exists, and the first answers to it."""
    rows = TopicMessage.objects.only("message_id", "topic_id", "seq", "sender", "reply_to")
    asked = {message.reply_to for message in messages if message.reply_to}
    # Without the topic: with it SQLite may read the whole topic by number.
    answered = {row.message_id: row for row in rows.filter(message_id__in=asked) if row.topic_id == topic_id}
    answers: dict[str | None, list[TopicMessage]] = defaultdict(list)
    known = [message.message_id for message in messages]
    # the order of their index
    replies = rows.filter(topic_id=topic_id, reply_to__in=known).order_by("reply_to", "document")
    for row in replies[: ANSWERS * len(known)]:
        if len(answers[row.reply_to]) < ANSWERS:
            answers[row.reply_to].append(row)
    return {
        message.message_id: Exchange(answered.get(message.reply_to or ""), answers[message.message_id])
        for message in messages
    }


def unreached(sent: Sequence[TopicMessage]) -> list[str]:
    """Return the names after an @ in messages of one topic that are neither an agent's nor a peer's."""
    named = {name for message in sent for name in naming.mentioned(message.content_markdown)}
    if not named:
        return []
    known = {*Agent.objects.filter(pk__in=named).values_list("pk", flat=True)}
    known |= {*Peer.objects.filter(topic=sent[0].topic_id, agent_name__in=named).values_list("agent_name", flat=True)}
    return sorted({naming.bare(name) for name in named} - {naming.bare(name) for name in known})
