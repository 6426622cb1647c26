"""The rows of this app as every transport returns them; times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, overload

from typing_extensions import TypedDict

from nexus.core.operations.parameters import one_of
from nexus.topics.models import Peer, Topic, TopicMessage, TopicStatus

NAMED = 10  # names in a warning
TopicState = Annotated[str, one_of(TopicStatus.values)]


@overload
def epoch(moment: datetime) -> float: ...
@overload
def epoch(moment: None) -> None: ...
def epoch(moment: datetime | None) -> float | None:
    """Return a time in seconds since the epoch; null stays null."""
    return None if moment is None else moment.timestamp()


class Warned(TypedDict):
    code: str
    message: str


def unreached(names: Sequence[str]) -> Warned:
    """Return the warning about names after an @ that reach nobody."""
    shown = ", ".join(f"@{name}" for name in names[:NAMED]) + (" and others" if len(names) > NAMED else "")
    return {
        "code": "NOBODY_NAMED",
        "message": f"No agent and nobody in this topic has the name {shown}: nobody was told. agent_list has names.",
    }


class TopicRef(TypedDict):
    topic_id: str
    name: str
    status: TopicState


class TopicRow(TopicRef):
    created_at: float
    closed_at: float | None
    close_reason: str | None
    metadata: dict[str, Any] | None


def topic_ref(topic: Topic) -> TopicRef:
    return {"topic_id": topic.topic_id, "name": topic.name, "status": topic.status}


def topic_row(topic: Topic) -> TopicRow:
    return {
        **topic_ref(topic),
        "created_at": epoch(topic.created_at),
        "closed_at": epoch(topic.closed_at),
        "close_reason": topic.close_reason,
        "metadata": topic.metadata,
    }


class TopicMessageRow(TypedDict):
    message_id: str
    topic_id: str
    seq: int
    sender: str
    message_type: str
    reply_to: str | None
    content_markdown: str
    metadata: dict[str, Any] | None
    client_message_id: str | None
    created_at: float


def message_row(message: TopicMessage) -> TopicMessageRow:
    return {
        "message_id": message.message_id,
        "topic_id": message.topic_id,
        "seq": message.seq,
        "sender": message.sender,
        "message_type": message.message_type,
        "reply_to": message.reply_to,
        "content_markdown": message.content_markdown,
        "metadata": message.metadata,
        "client_message_id": message.client_message_id,
        "created_at": epoch(message.created_at),
    }


class CursorRow(TypedDict):
    last_seq: int
    updated_at: float


def cursor_row(peer: Peer) -> CursorRow:
    assert peer.synced_at is not None, "made only after a sync"
    return {"last_seq": peer.last_seq, "updated_at": epoch(peer.synced_at)}


class PeerRow(TypedDict):
    agent_name: str
    last_seq: int
    updated_at: float
    age_seconds: float


def peer_row(peer: Peer, now: datetime) -> PeerRow:
    cursor = cursor_row(peer)
    return {"agent_name": peer.agent_name, **cursor, "age_seconds": max(epoch(now) - cursor["updated_at"], 0.0)}
