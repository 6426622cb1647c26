"""The reads of topics."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Count, QuerySet

from nexus.core.clock import now
from nexus.core.database.prepared import Select, Slot
from nexus.topics.errors import no_topic
from nexus.topics.models import Peer, Topic, TopicMessage, TopicStatus

LONGEST_WINDOW = 36_500 * 86_400  # seconds


def get_topic(topic_id: str) -> Topic:
    """Return a topic. Raises TOPIC_NOT_FOUND."""
    topic = _topic.first(topic_id=topic_id)
    if topic is None:
        raise no_topic(topic_id)
    return topic


_topic = Select(lambda: Topic.objects.filter(pk=Slot("topic_id")))


def named(name: str, *, allow_closed: bool = False) -> Topic | None:
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
    return _peer.first(topic_id=topic_id, agent_name=agent_name)


_peer = Select(lambda: Peer.objects.filter(topic_id=Slot("topic_id"), agent_name=Slot("agent_name")))


def present(topic_id: str, *, window_seconds: int, limit: int) -> list[Peer]:
    """Return the peers that synced within the window, latest first."""
    since = now() - timedelta(seconds=min(window_seconds, LONGEST_WINDOW))
    return list(Peer.objects.filter(topic_id=topic_id).present(since)[:limit])


def behind(peer: Peer, *, include_self: bool, limit: int) -> list[TopicMessage]:
    """Return the next messages after a peer's cursor, oldest first."""
    if include_self:
        return _every_message(limit, topic_id=peer.topic_id, after=peer.last_seq)
    return _others_messages(limit, topic_id=peer.topic_id, after=peer.floor, agent_name=peer.agent_name)


_every_message = Select(
    lambda: TopicMessage.objects.filter(topic_id=Slot("topic_id"), seq__gt=Slot("after")).order_by("seq")
)
_others_messages = Select(
    lambda: (
        TopicMessage.objects.filter(topic_id=Slot("topic_id"), seq__gt=Slot("after"))
        .exclude(sender=Slot("agent_name"))
        .order_by("seq")
    )
)


def page(topic_id: str, *, after: int, limit: int) -> list[TopicMessage]:
    """Return the messages of a topic after a sequence number, oldest first."""
    return _every_message(limit, topic_id=topic_id, after=after)


def newest(topic_id: str, *, limit: int, before: int | None = None) -> list[TopicMessage]:
    """Return the newest messages of a topic, oldest first; before a sequence number if one is given."""
    messages = TopicMessage.objects.filter(topic_id=topic_id)
    if before is not None:
        messages = messages.filter(seq__lt=before)
    return list(messages.order_by("-seq")[:limit])[::-1]


def taken_names(topic_id: str) -> set[str]:
    """Return every name that is reserved in a topic."""
    return set(Peer.objects.filter(topic_id=topic_id).values_list("agent_name", flat=True))
