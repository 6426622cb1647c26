"""Operators' operations, and the reads of their pages and commands; they are not tools for agents."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.parameters import Id, Nothing, Params
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.topics import search, selectors, services
from nexus.topics.parameters import OutgoingMessage, Positive, Seq, TopicId, TopicName
from nexus.topics.rows import (
    TopicMessageRow,
    TopicRef,
    TopicRow,
    Warned,
    epoch,
    message_row,
    topic_ref,
    topic_row,
    unreached,
)
from nexus.topics.services import Outgoing
from nexus.topics.toolset import TopicCode, operation

MOST = 500  # topics or messages of one call


class TopicOverview(Params):
    status: Literal["open", "closed", "all"] = "all"
    limit: Positive = 100


class KnownTopic(TopicRow):
    last_seq: int
    last_message_at: float | None
    peers: int


class KnownTopics(TypedDict):
    topics: list[KnownTopic]


@operation(TopicOverview, TopicCode.INVALID_ARGUMENT, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def topic_overview(p: TopicOverview, caller: Caller) -> KnownTopics:
    """Topics, newest first, with how much was said, when last, and how many names are reserved."""
    return {
        "topics": [
            {
                **topic_row(topic),
                "last_seq": topic.last_seq,
                "last_message_at": epoch(topic.last_message_at),
                "peers": peers,
            }
            for topic, peers in selectors.overview(p.status, limit=min(p.limit, MOST))
        ]
    }


class TopicRead(Params):
    topic_id: TopicId
    after: Annotated[Seq | None, Field(description="The messages after this number; left out: the newest.")] = None
    limit: Positive = 50


class ReadTopic(TopicRow):
    last_seq: int
    messages: list[TopicMessageRow]


@operation(
    TopicRead,
    TopicCode.TOPIC_NOT_FOUND,
    TopicCode.INVALID_ARGUMENT,
    requires=(OPERATORS_ONLY,),
    tool=False,
    read_only=True,
)
def topic_read(p: TopicRead, caller: Caller) -> ReadTopic:
    """A topic and its messages, oldest first; nobody's cursor moves."""
    topic, limit = selectors.get_topic(p.topic_id), min(p.limit, MOST)
    if p.after is None:
        messages = selectors.newest(p.topic_id, limit=limit)
    else:
        messages = selectors.page(p.topic_id, after=p.after, limit=limit)
    return {**topic_row(topic), "last_seq": topic.last_seq, "messages": [message_row(each) for each in messages]}


class TopicPost(Params):
    topic_id: TopicId
    message: OutgoingMessage
    seen: Annotated[Seq, Field(description="The newest message that the operator has seen.")] = 0


class Posted(TypedDict):
    message: TopicMessageRow
    warnings: NotRequired[list[Warned]]


@operation(
    TopicPost,
    TopicCode.TOPIC_NOT_FOUND,
    TopicCode.TOPIC_CLOSED,
    TopicCode.INVALID_ARGUMENT,
    requires=(OPERATORS_ONLY,),
    tool=False,
)
def topic_post(p: TopicPost, caller: Caller) -> Posted:
    """Say something in a topic as the operator; the first message joins it."""
    outgoing = Outgoing(**dict(p.message))
    message = services.post(topic_id=p.topic_id, outgoing=outgoing, seen=p.seen, operator=operator_behind(caller))
    posted: Posted = {"message": message_row(message)}
    if names := selectors.unreached([message]):
        posted["warnings"] = [unreached(names)]
    return posted


class TopicRename(Params):
    topic_id: TopicId
    name: TopicName
    rewrite_messages: Annotated[bool, Field(description="Put the new name into messages that name the topic.")] = False


class RenamedTopic(TopicRef):
    messages: int


@operation(TopicRename, TopicCode.TOPIC_NOT_FOUND, TopicCode.INVALID_ARGUMENT, requires=(OPERATORS_ONLY,), tool=False)
def topic_rename(p: TopicRename, caller: Caller) -> RenamedTopic:
    """Give a topic another name; how many messages were rewritten."""
    topic, changed = services.rename(
        topic_id=p.topic_id, name=p.name, rewrite_messages=p.rewrite_messages, operator=operator_behind(caller)
    )
    return {**topic_ref(topic), "messages": changed}


class TopicDelete(Params):
    topic_id: TopicId


class DeletedTopic(TypedDict):
    topic_id: str
    messages: int
    peers: int


@operation(
    TopicDelete,
    TopicCode.TOPIC_NOT_FOUND,
    TopicCode.INVALID_ARGUMENT,
    requires=(OPERATORS_ONLY,),
    tool=False,
    destructive=True,
)
def topic_delete(p: TopicDelete, caller: Caller) -> DeletedTopic:
    """Delete a topic with its messages, cursors and reserved names."""
    gone = services.delete(topic_id=p.topic_id, operator=operator_behind(caller))
    return {"topic_id": p.topic_id, "messages": gone.messages, "peers": gone.peers}


class TopicMessageDelete(Params):
    message_id: Id


class DeletedMessages(TypedDict):
    message_id: str
    messages: int


@operation(TopicMessageDelete, TopicCode.INVALID_ARGUMENT, requires=(OPERATORS_ONLY,), tool=False, destructive=True)
def topic_message_delete(p: TopicMessageDelete, caller: Caller) -> DeletedMessages:
    """Delete a message of a topic with the replies to it; their numbers are not given out again."""
    return {
        "message_id": p.message_id,
        "messages": services.delete_message(message_id=p.message_id, operator=operator_behind(caller)),
    }


class Reindexed(TypedDict):
    messages: int


@operation(Nothing, requires=(OPERATORS_ONLY,), tool=False, idempotent=True, slow=True, takes_minutes=True)
def topic_reindex(p: Nothing, caller: Caller) -> Reindexed:
    """Rebuild the index of topics' words; return how many messages it holds."""
    return {"messages": search.rebuild()}
