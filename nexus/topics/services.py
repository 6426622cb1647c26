"""Writes of topics: create, close, join, sync, reset; operators' rename and delete. Each is one transaction.

Those of peers are under the name of the topic, to which all belongs that they read, with its numbers and names.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.models import Agent
from coordination.services import audit
from nexus.core.clock import now
from nexus.core.database.sql import insert
from nexus.core.database.store import store, write
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import NexusError
from nexus.topics import naming, selectors, sql
from nexus.topics.models import STREAM, Mention, Peer, Topic, TopicMessage, TopicStatus
from nexus.topics.toolset import TopicCode, argument

MOST_RECLAIMED = 20  # topics of an agent that joins


@dataclass(frozen=True)
class Outgoing:
    """A message to send."""

    content_markdown: str
    message_type: str = "message"
    reply_to: str | None = None
    metadata: dict[str, Any] | None = None
    client_message_id: str | None = None


@dataclass(frozen=True)
class Posted:
    """A message that was sent, now or, as a duplicate, earlier."""

    message: TopicMessage
    duplicate: bool


@dataclass(frozen=True)
class Synced:
    """What a sync sent and received, and the peer with its new cursor."""

    peer: Peer
    sent: list[Posted]
    received: list[TopicMessage]
    has_more: bool


@dataclass(frozen=True)
class Membership:
    """A topic, and the token that reclaims the name in it."""

    topic: Topic
    token: str


def create(*, name: str | None, metadata: dict[str, Any] | None, reuse: bool, agent_id: str | None = None) -> Topic:
    """Create a topic, or return the newest open one of that name with `reuse`. Without a name, one is made."""
    reusable = name if reuse else None
    if reusable is not None and (topic := selectors.topic_named(reusable)):
        return topic
    with write(f"topic {name}"):
        if reusable is not None and (topic := selectors.topic_named(reusable)):
            return topic  # another call was faster
        moment, topic_id = now(), new_id("tpc")
        topic = Topic(topic_id=topic_id, name=name or f"topic-{topic_id[-8:]}", metadata=metadata, created_at=moment)
        topic.save(force_insert=True)
        _emit("topic.created", topic, agent_id, moment)
    return topic


def close(*, topic_id: str, reason: str | None, agent_id: str | None = None) -> tuple[Topic, bool]:
    """Close a topic; return it, and whether this call did it. The first reason and time stay.

    Raises TOPIC_NOT_FOUND.
    """
    with write(topic_id):
        moment = now()
        closing = Topic.objects.filter(pk=topic_id).open()
        closed = closing.update(status=TopicStatus.CLOSED, closed_at=moment, close_reason=reason)
        topic = selectors.get_topic(topic_id)
        if closed:
            _emit("topic.closed", topic, agent_id, moment, reason=reason)
    return topic, bool(closed)


def join(
    *, topic: Topic, agent_name: str, token: str | None, held: str | None, agent_id: str | None = None
) -> Membership:
    """Reserve a name in a topic, or reclaim it.

    `token` is the token that the caller presents, `held` the token of this name that its connection holds already, and
    `agent_id` the agent it is bound to. Raises AGENT_NAME_IN_USE, TOPIC_NOT_FOUND.
    """
    with write(topic.topic_id):
        moment = now()
        peer = selectors.peer(topic.topic_id, agent_name)
        if peer is not None and peer.token_hash is not None:
            reclaiming = held if token is None else token
            if reclaiming is None or not hmac.compare_digest(digest(reclaiming), peer.token_hash):
                raise _in_use(topic, agent_name, presented=token is not None)
            token = reclaiming
            Peer.objects.filter(pk=peer.pk).update(claimed_at=moment, agent_id=agent_id)
        else:
            selectors.get_topic(topic.topic_id)  # it may have been deleted meanwhile
            token = secrets.token_hex(16)
            Peer.objects.update_or_create(
                topic=topic,
                agent_name=agent_name,
                defaults={"token_hash": digest(token), "claimed_at": moment, "agent_id": agent_id},
                create_defaults={
                    "token_hash": digest(token),
                    "claimed_at": moment,
                    "agent_id": agent_id,
                    "created_at": moment,
                },
            )
        _emit("topic.joined", topic, agent_id, moment, agent_name=agent_name)
    return Membership(topic, token)


def reclaim(*, agent_id: str) -> list[tuple[Peer, str]]:
    """Give an agent its names in open topics back, the latest MOST_RECLAIMED; return the peers with their new tokens.

    The agent's key proves that the names are its own, so it needs no token.
    """
    mine = Peer.objects.filter(agent_id=agent_id, token_hash__isnull=False, topic__status=TopicStatus.OPEN)
    latest = dict(mine.order_by("-claimed_at", "-pk").values_list("pk", "topic_id")[:MOST_RECLAIMED])
    if not latest:
        return []
    with write(*latest.values()):
        moment = now()
        peers = list(mine.select_related("topic").filter(pk__in=latest).order_by("-claimed_at", "-pk"))
        tokens = [secrets.token_hex(16) for _ in peers]
        for peer, token in zip(peers, tokens, strict=True):
            Peer.objects.filter(pk=peer.pk).update(token_hash=digest(token), claimed_at=moment)
            _emit("topic.joined", peer.topic, agent_id, moment, agent_name=peer.agent_name)
    return list(zip(peers, tokens, strict=True))


def digest(token: str) -> str:
    """Return a token's stored form. Its 32 random hexadecimal digits need no salt."""
    return hashlib.sha256(token.encode()).hexdigest()


def sync(
    *,
    topic_id: str,
    agent_name: str,
    outbox: Sequence[Outgoing] = (),
    max_items: int,
    include_self: bool = False,
    auto_advance: bool = True,
    ack_through: int | None = None,
    agent_id: str | None = None,
) -> Synced:
    """Send the outbox, all of it or nothing; then read the messages after the cursor and move it, all in one
    transaction.

    Raises TOPIC_NOT_FOUND, AGENT_NOT_JOINED, TOPIC_CLOSED, INVALID_ARGUMENT (reply_to, ack_through).
    """
    with write(topic_id):
        moment = now()
        topic, peer = _peer(topic_id, agent_name)
        sent = _send(topic, agent_name, outbox, agent_id, moment) if outbox else []
        if not auto_advance and ack_through is not None:
            _within(topic, "ack_through", ack_through)
            peer.last_seq = max(peer.last_seq, ack_through)
        found = selectors.behind(peer, include_self=include_self, limit=max_items + 1)
        received, has_more = found[:max_items], len(found) > max_items
        if received and auto_advance:
            peer.last_seq = max(peer.last_seq, received[-1].seq)
        if not found and not include_self:
            peer.own_through = topic.last_seq
        peer.synced_at = moment
        with store().batch():
            sql.keep_cursor(pk=peer.pk, last_seq=peer.last_seq, own_through=peer.own_through, moment=moment)
    return Synced(peer, sent, received, has_more)


def reset_cursor(*, topic_id: str, agent_name: str, last_seq: int) -> Peer:
    """Set a peer's cursor. Raises TOPIC_NOT_FOUND, AGENT_NOT_JOINED, INVALID_ARGUMENT (beyond the newest message)."""
    with write(topic_id):
        topic, peer = _peer(topic_id, agent_name)
        _within(topic, "last_seq", last_seq)
        peer.last_seq, peer.own_through, peer.synced_at = last_seq, 0, now()
        sql.keep_cursor(pk=peer.pk, last_seq=last_seq, own_through=0, moment=peer.synced_at)
    return peer


def _peer(topic_id: str, agent_name: str) -> tuple[Topic, Peer]:
    topic = selectors.get_topic(topic_id)
    peer = selectors.peer(topic_id, agent_name)
    if peer is None:
        raise not_joined(topic)
    return topic, peer


def not_joined(topic: Topic) -> NexusError:
    """Return an AGENT_NOT_JOINED, to raise."""
    return NexusError(
        TopicCode.AGENT_NOT_JOINED,
        f"This connection has not joined {topic.name!r}: call topic_join first, with your reclaim_token if you have "
        "been here before.",
    )


def _send(
    topic: Topic, sender: str, outbox: Sequence[Outgoing], agent_id: str | None, moment: datetime
) -> list[Posted]:
    sent: list[Posted] = []
    fresh: list[TopicMessage] = []
    for number, outgoing in enumerate(outbox):
        key = outgoing.client_message_id
        original = _sent_before(topic, sender, key, fresh) if key is not None else None
        if original is None:
            if topic.status == TopicStatus.CLOSED:
                raise NexusError(
                    TopicCode.TOPIC_CLOSED,
                    f"The topic {topic.name!r} is closed and takes no more messages; nothing was sent.",
                )
            message = _written(topic, sender, outgoing, f"outbox[{number}]", moment)
            fresh.append(message)
        sent.append(Posted(original or fresh[-1], duplicate=original is not None))
    if fresh:
        insert(*fresh)
        sql.count(topic_id=topic.topic_id, last_seq=topic.last_seq, moment=moment)
    for message in fresh:
        mentions = _mention(message)
        _emit(
            "topic.message",
            topic,
            agent_id,
            moment,
            message_id=message.message_id,
            seq=message.seq,
            sender=sender,
            message_type=message.message_type,
            reply_to=message.reply_to,
            mentions=mentions,
        )
    return sent


def _mention(message: TopicMessage) -> list[str]:
    """Record the agents that a message names; return them, sorted."""
    names = naming.mentioned(message.content_markdown)
    agents = sorted(Agent.objects.filter(pk__in=names).values_list("pk", flat=True)) if names else []
    insert(*(Mention(message=message, agent_id=agent_id) for agent_id in agents))
    return agents


def _sent_before(topic: Topic, sender: str, key: str, fresh: Sequence[TopicMessage]) -> TopicMessage | None:
    """Return the message that was sent with a key, in this outbox or earlier."""
    here = next((message for message in fresh if message.client_message_id == key), None)
    return here or TopicMessage.objects.filter(topic=topic, sender=sender, client_message_id=key).first()


def _written(topic: Topic, sender: str, outgoing: Outgoing, item: str, moment: datetime) -> TopicMessage:
    """Return the next message of a topic; it is not stored yet."""
    answered = outgoing.reply_to
    if answered is not None and not TopicMessage.objects.filter(topic=topic, message_id=answered).exists():
        raise argument(
            f"{item}.reply_to must be the message_id of a message in this topic; nothing was sent of this outbox."
        )
    topic.last_seq += 1
    return TopicMessage(
        message_id=new_id("tms"),
        topic_id=topic.topic_id,
        seq=topic.last_seq,
        sender=sender,
        message_type=outgoing.message_type,
        reply_to=outgoing.reply_to,
        content_markdown=outgoing.content_markdown,
        metadata=outgoing.metadata,
        client_message_id=outgoing.client_message_id,
        created_at=moment,
    )


def _within(topic: Topic, field: str, seq: int) -> None:
    if seq > topic.last_seq:
        raise argument(f"{field} must not exceed the newest message's number, which is {topic.last_seq}.")


def _in_use(topic: Topic, agent_name: str, *, presented: bool) -> NexusError:
    names = naming.suggestions(agent_name, selectors.taken_names(topic.topic_id))
    why = "and this is not its reclaim_token" if presented else "pass its reclaim_token if it is yours"
    return NexusError(
        TopicCode.AGENT_NAME_IN_USE,
        f"The name {agent_name!r} is reserved in {topic.name!r}, {why}; or take another one, such as {names[0]!r}.",
        {"requested_agent_name": agent_name, "suggested_agent_names": names},
    )


def _emit(type: str, topic: Topic, agent_id: str | None, moment: datetime, **payload: Any) -> None:
    """Append an event of a topic to the log, inside the caller's transaction."""
    emit(
        workspace_id=None,
        stream=STREAM,
        type=type,
        actor=agent_id,
        payload={"topic_id": topic.topic_id, "topic": topic.name, **payload},
        moment=moment,
    )


class ChangeCounts(NamedTuple):
    """The numbers of rows that an operation changed."""

    topics: int
    messages: int
    peers: int


def post(*, topic_id: str, outgoing: Outgoing, seen: int, operator: str) -> TopicMessage:
    """Send a message as the operators' peer and move its cursor to `seen`; the first message reserves the peer's name.

    Raises TOPIC_NOT_FOUND, TOPIC_CLOSED, INVALID_ARGUMENT (reply_to, seen).
    """
    with write(), audit.acting(operator, "topic_post", topic_id=topic_id) as about:
        synced = sync(
            topic_id=topic_id,
            agent_name=_operators_name(selectors.get_topic(topic_id)),
            outbox=[outgoing],
            max_items=1,
            auto_advance=False,
            ack_through=seen,
            agent_id=OPERATOR_AGENT,
        )
        message = synced.sent[0].message
        about["message_id"] = message.message_id
    return message


def _operators_name(topic: Topic) -> str:
    """Return the one name of all operators in a topic. Nobody has its token, so nobody else can join with it."""
    peer = Peer.objects.filter(topic=topic, agent_id=OPERATOR_AGENT).order_by("pk").first()
    if peer is not None:
        return peer.agent_name
    taken = selectors.taken_names(topic.topic_id)
    name = naming.suggestions(OPERATOR_AGENT, taken)[0] if OPERATOR_AGENT in taken else OPERATOR_AGENT
    join(topic=topic, agent_name=name, token=None, held=None, agent_id=OPERATOR_AGENT)
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


def delete(*, topic_id: str, operator: str) -> ChangeCounts:
    """Delete a topic with its messages, cursors and reserved names; return their numbers. Raises TOPIC_NOT_FOUND."""
    with write():
        topic = selectors.get_topic(topic_id)
        gone = ChangeCounts(1, topic.messages.count(), topic.peers.count())
        Mention.objects.filter(message__topic=topic).delete()
        sql.delete_all(topic_id=topic_id)
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


def delete_message(*, message_id: str, operator: str) -> int:
    """Delete a message with the replies to it; return how many. Their sequence numbers are not used again.

    Raises INVALID_ARGUMENT for a message that does not exist.
    """
    with write():
        message = TopicMessage.objects.filter(message_id=message_id).first()
        if message is None:
            raise argument(f"There is no message {message_id[:255]!r} in any topic.")
        thread = {"topic_id": message.topic_id, "message_id": message_id}
        sql.delete_mentions(**thread)
        count = sql.delete_thread(**thread)
        about = {**thread, "messages": count}
        audit.record(operator, "topic.message_deleted", now(), **about)
    return count
