"""Operations that open, find, close and join topics.
Operations that open, find, close and join topics."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from nexus.core.operations.caller import Caller
from nexus.core.operations.pages import Paged, PageEnd, page
from nexus.core.operations.parameters import Nothing, Params
from nexus.core.version import package_version
from nexus.topics import connections, selectors, services
from nexus.topics.connections import Held
from nexus.topics.errors import TopicCode, argument, no_topic
from nexus.topics.parameters import AgentName, Metadata, Text, TopicId, TopicName
from nexus.topics.rows import TopicRef, TopicRow, TopicState, epoch, topic_ref, topic_row
from nexus.topics.toolset import operation

SPEC_VERSION = "v6.3"  # the version of Agent Bus whose clients this toolset serves


class Pong(TypedDict):
    ok: bool
    spec_version: str
    package_version: str


@operation(Nothing, read_only=True)
def ping(p: Nothing, caller: Caller) -> Pong:
    """Whether the server answers, and its versions."""
    return {"ok": True, "spec_version": SPEC_VERSION, "package_version": package_version()}


class TopicCreate(Params):
    name: TopicName | None = None
    metadata: Metadata | None = None
    mode: Annotated[
        Literal["reuse", "new"], Field(description="reuse: the newest open topic of that name, if there is one.")
    ] = "reuse"


@operation(TopicCreate, TopicCode.INVALID_ARGUMENT)
def topic_create(p: TopicCreate, caller: Caller) -> TopicRef:
    """Open a topic: a room with one ordered stream of messages. Join it before you sync."""
    topic = services.create(name=p.name, metadata=p.metadata, reuse=p.mode == "reuse", agent_id=caller.agent_id)
    return topic_ref(topic)


class TopicList(Paged):
    status: Literal["open", "closed", "all"] = "open"


class TopicsListed(PageEnd):
    topics: list[TopicRow]


@operation(TopicList, TopicCode.INVALID_ARGUMENT, read_only=True)
def topic_list(p: TopicList, caller: Caller) -> TopicsListed:
    """Topics, newest first."""
    topics, end = page(selectors.with_status(p.status), p, by="-created_at", refused=TopicCode.INVALID_ARGUMENT)
    return {"topics": [topic_row(topic) for topic in topics], **end}


class TopicResolve(Params):
    name: TopicName
    allow_closed: bool = False


@operation(TopicResolve, TopicCode.TOPIC_NOT_FOUND, TopicCode.INVALID_ARGUMENT, read_only=True)
def topic_resolve(p: TopicResolve, caller: Caller) -> TopicRef:
    """The newest open topic of a name; with allow_closed a closed one where none is open."""
    topic = selectors.named(p.name, allow_closed=p.allow_closed)
    if topic is None:
        raise no_topic(p.name)
    return topic_ref(topic)


class TopicClose(Params):
    topic_id: TopicId
    reason: Text | None = None


class Warned(TypedDict):
    code: str
    message: str


class ClosedTopic(TypedDict):
    topic_id: str
    status: TopicState
    closed_at: float | None
    close_reason: str | None
    warnings: NotRequired[list[Warned]]


@operation(TopicClose, TopicCode.TOPIC_NOT_FOUND, TopicCode.INVALID_ARGUMENT, idempotent=True)
def topic_close(p: TopicClose, caller: Caller) -> ClosedTopic:
    """End a topic for everybody: it takes no more messages, and can still be read."""
    topic, closed = services.close(topic_id=p.topic_id, reason=p.reason, agent_id=caller.agent_id)
    data: ClosedTopic = {
        "topic_id": topic.topic_id,
        "status": topic.status,
        "closed_at": epoch(topic.closed_at),
        "close_reason": topic.close_reason,
    }
    if not closed:
        message = "The topic was closed before; its first reason and time stay."
        data["warnings"] = [{"code": "ALREADY_CLOSED", "message": message}]
    return data


class TopicJoin(Params):
    agent_name: Annotated[AgentName, Field(description="Your name in the topic, such as red-squirrel.")]
    topic_id: Annotated[TopicId | None, Field(description="This or name.")] = None
    name: TopicName | None = None
    allow_closed: bool = False
    reclaim_token: Annotated[
        str | None, Field(max_length=255, description="From your first join: takes the name back after a restart.")
    ] = None


class JoinedTopic(TopicRef):
    agent_name: str
    reclaim_token: str


@operation(TopicJoin, TopicCode.TOPIC_NOT_FOUND, TopicCode.AGENT_NAME_IN_USE, TopicCode.INVALID_ARGUMENT)
def topic_join(p: TopicJoin, caller: Caller) -> JoinedTopic:
    """Take a name in a topic, for this connection. Keep reclaim_token: the name stays reserved, and after a restart
    only the token gives it and its cursor back."""
    if (p.topic_id is None) == (p.name is None):
        raise argument("Pass either topic_id or name, and not both.")
    topic = selectors.get_topic(p.topic_id) if p.topic_id is not None else None
    if p.name is not None:
        topic = selectors.named(p.name, allow_closed=p.allow_closed)
    if topic is None:
        raise no_topic(p.name or "")
    known = connections.joined_peer(caller, topic.topic_id)
    joined = services.join(
        topic=topic,
        agent_name=p.agent_name,
        token=p.reclaim_token,
        held=known.token if known and known.agent_name == p.agent_name else None,
        agent_id=caller.agent_id,
    )
    connections.hold(caller, topic.topic_id, Held(p.agent_name, joined.token))
    return {**topic_ref(topic), "agent_name": p.agent_name, "reclaim_token": joined.token}
