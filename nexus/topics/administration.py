"""Operators' writes to topics: rename, delete, import. Each is one transaction and records the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from django.db import IntegrityError
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from coordination.services import audit
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.topics import naming, selectors, services
from nexus.topics.archive import ArchivedTopic
from nexus.topics.errors import argument
from nexus.topics.models import Mention, Peer, Topic, TopicMessage
from nexus.topics.services import Outgoing, Synced

AT_ONCE = 500  # rows that one statement writes


class Counted(NamedTuple):
    """The numbers of rows that an operation changed."""

    topics: int
    messages: int
    peers: int


def post(*, topic_id: str, outgoing: Outgoing, seen: int, operator: str) -> TopicMessage:
    """Send a message as the operators' peer and move its cursor to `seen`; the first message reserves the peer's name.

    Raises TOPIC_NOT_FOUND, TOPIC_CLOSED, INVALID_ARGUMENT (reply_to, seen).
    """
    with write(), audit.acting(operator, "topic_post", topic_id=topic_id) as about:
        message = _sync(selectors.get_topic(topic_id), [outgoing], seen).sent[0].message
        about["message_id"] = message.message_id
    return message


def join(*, topic_id: str, seen: int, operator: str) -> tuple[Topic, Peer]:
    """Reserve the operators' name in a topic if needed, and move its cursor to `seen`, without a message.

    Return the topic and the operators' peer. Raises TOPIC_NOT_FOUND, INVALID_ARGUMENT (seen).
    """
    with write(), audit.acting(operator, "topic_join_as_operator", topic_id=topic_id):
        topic = selectors.get_topic(topic_id)
        peer = _sync(topic, [], seen).peer
    return topic, peer


def _sync(topic: Topic, outbox: Sequence[Outgoing], seen: int) -> Synced:
    return services.sync(
        topic_id=topic.topic_id,
        agent_name=_operators_name(topic),
        outbox=outbox,
        max_items=1,
        auto_advance=False,
        ack_through=seen,
        agent_id=OPERATOR_AGENT,
    )


def _operators_name(topic: Topic) -> str:
    """Return the one name of all operators in a topic. Nobody has its token, so nobody else can join with it."""
    peer = Peer.objects.filter(topic=topic, agent_id=OPERATOR_AGENT).order_by("pk").first()
    if peer is not None:
        return peer.agent_name
    taken = selectors.taken_names(topic.topic_id)
    name = naming.suggestions(OPERATOR_AGENT, taken)[0] if OPERATOR_AGENT in taken else OPERATOR_AGENT
    services.join(topic=topic, agent_name=name, token=None, held=None, agent_id=OPERATOR_AGENT)
    return name


def rename(*, topic_id: str, name: str, rewrite_messages: bool, operator: str) -> tuple[Topic, int]:
    """Rename a topic; if wanted, also replace the old name in its messages where it is a word of its own.

    Return the topic and the number of changed messages. Raises TOPIC_NOT_FOUND, INVALID_ARGUMENT (a message would
    grow too long).
    """
    with write():
        topic = selectors.get_topic(topic_id)
        old, topic.name = topic.name, name
        topic.save(update_fields=["name"])
        changed = _rewrite(topic, old, name) if rewrite_messages else 0
        audit.record(operator, "topic.renamed", now(), topic_id=topic_id, name=name, before=old, messages=changed)
    return topic, changed


def _rewrite(topic: Topic, old: str, new: str) -> int:
    changed = 0
    for message in TopicMessage.objects.filter(topic=topic, content_markdown__contains=old).iterator():
        text = naming.renamed(message.content_markdown, old, new)
        if text != message.content_markdown:
            try:
                naming.fitting(text)
            except ValueError as error:
                raise argument(f"Nothing was renamed: message {message.seq} {error}.") from None
            TopicMessage.objects.filter(pk=message.pk).update(content_markdown=text)
            changed += 1
    return changed


def delete(*, topic_id: str, operator: str) -> Counted:
    """Delete a topic with its messages, cursors and reservations; return their numbers. Raises TOPIC_NOT_FOUND."""
    with write():
        topic = selectors.get_topic(topic_id)
        gone = Counted(1, topic.messages.count(), topic.peers.count())
        _delete(TopicMessage.objects.filter(topic=topic))
        topic.delete()
        audit.record(
            operator,
            "topic.deleted",
            now(),
            topic_id=topic_id,
            name=topic.name,
            messages=gone.messages,
            peers=gone.peers,
        )
    return gone


def _delete(messages: QuerySet[TopicMessage]) -> None:
    Mention.objects.filter(message__in=messages).delete()
    # delete() would read each message first to delete mentions, which are gone already
    messages._raw_delete(messages.db)


# UNION, not UNION ALL: replies of an imported topic may form a cycle.
REPLIES = """
    WITH RECURSIVE gone(message_id) AS (
        SELECT CAST(%s AS varchar)
        UNION SELECT m.message_id FROM topic_messages m JOIN gone g ON m.topic_id = %s AND m.reply_to = g.message_id
    )
    SELECT message_id FROM gone
"""


def with_replies(message: TopicMessage) -> QuerySet[TopicMessage]:
    """Return a message, the replies to it, the replies to those, and so on."""
    ids = RawSQL(REPLIES, [message.message_id, message.topic_id])  # noqa: S611  # a constant, with parameters
    return TopicMessage.objects.filter(message_id__in=ids)


def delete_message(*, message_id: str, operator: str) -> int:
    """Delete a message with the replies to it; return how many. Their sequence numbers are not used again.

    Raises INVALID_ARGUMENT for a message that does not exist.
    """
    with write():
        message = TopicMessage.objects.filter(message_id=message_id).first()
        if message is None:
            raise argument(f"There is no message {message_id[:255]!r} in any topic.")
        gone = with_replies(message)
        count = gone.count()
        _delete(gone)
        about = {"topic_id": message.topic_id, "message_id": message_id, "messages": count}
        audit.record(operator, "topic.message_deleted", now(), **about)
    return count


def restore(topics: Sequence[ArchivedTopic], *, operator: str) -> Counted:
    """Store archived topics, all of them or none; return how many.

    Raises INVALID_ARGUMENT for a topic or message that exists already, and for an inconsistent file.
    """
    for topic in topics:
        if (topic.status == "closed") is (topic.closed_at is None):
            raise argument(f"Nothing was imported: {topic.name!r} is {topic.status} at odds with its closed_at.")
        highest = max((message.seq for message in topic.messages), default=0)
        if max([highest, *(peer.last_seq for peer in topic.peers)]) > topic.last_seq:
            raise argument(f"Nothing was imported: {topic.name!r} has numbers or cursors beyond its last_seq.")
    there = Topic.objects.filter(pk__in=[topic.topic_id for topic in topics]).first()
    if there is not None:
        raise argument(f"Nothing was imported: the topic {there.topic_id} ({there.name!r}) is here already.")
    count = Counted(len(topics), sum(len(each.messages) for each in topics), sum(len(each.peers) for each in topics))
    try:
        with write():
            for topic in topics:
                _put(topic)
            audit.record(operator, "topic.imported", now(), **count._asdict())
    except IntegrityError:
        raise argument(
            "Nothing was imported: a message is in this store already, or two of the file share an id or a number."
        ) from None
    return count


def _put(archived: ArchivedTopic) -> None:
    own = {name: value for name, value in archived if name not in ("format", "peers", "messages")}
    topic = Topic.objects.create(**own)
    Peer.objects.bulk_create((Peer(topic=topic, **dict(peer)) for peer in archived.peers), batch_size=AT_ONCE)
    TopicMessage.objects.bulk_create(
        (TopicMessage(topic=topic, **dict(message)) for message in archived.messages), batch_size=AT_ONCE
    )
