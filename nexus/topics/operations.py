"""The operations of topics for agents: open, find, close and join topics; read, write and search messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from coordination.log.selectors import interest_in
from nexus.core.clock import now
from nexus.core.config import package_version
from nexus.core.operations.caller import Caller
from nexus.core.operations.pages import Paged, PageEnd, page
from nexus.core.operations.parameters import Nothing, Params, ShownAs, not_blank, one_of
from nexus.core.operations.registry import Wait
from nexus.core.operations.replies import Prompt, Reference, packaged
from nexus.core.waiting import Interest
from nexus.topics import connections, naming, search, selectors, services
from nexus.topics.connections import HeldName
from nexus.topics.models import STREAM
from nexus.topics.parameters import AgentName, Metadata, Outbox, Positive, Seq, Text, TopicId, TopicName
from nexus.topics.rows import (
    CursorRow,
    PeerRow,
    TopicMessageRow,
    TopicRef,
    TopicRow,
    TopicState,
    Warned,
    cursor_row,
    epoch,
    message_row,
    peer_row,
    topic_ref,
    topic_row,
    unreached,
)
from nexus.topics.services import Outgoing, Posted, Synced
from nexus.topics.toolset import TOPICS, TopicCode, argument, no_topic, operation

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
    topic = selectors.topic_named(p.name, allow_closed=p.allow_closed)
    if topic is None:
        raise no_topic(p.name)
    return topic_ref(topic)


class TopicClose(Params):
    topic_id: TopicId
    reason: Text | None = None


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
        Annotated[str, Field(max_length=255), AfterValidator(not_blank)] | None,
        Field(description="From your first join: takes the name back after a restart."),
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
        topic = selectors.topic_named(p.name, allow_closed=p.allow_closed)
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
    connections.hold(caller, topic.topic_id, HeldName(p.agent_name, joined.token))
    return {**topic_ref(topic), "agent_name": p.agent_name, "reclaim_token": joined.token}


MOST_PEERS, MOST_RESULTS = 1000, 200
OF_A_PEER = (TopicCode.TOPIC_NOT_FOUND, TopicCode.AGENT_NOT_JOINED, TopicCode.INVALID_ARGUMENT)


class TopicPresence(Params):
    topic_id: TopicId
    window_seconds: Positive = 300
    limit: Annotated[Positive, Field(description=f"{MOST_PEERS} at most.")] = 200


class PeersPresent(TypedDict):
    topic_id: str
    window_seconds: int
    limit: int
    now: float
    count: int
    peers: list[PeerRow]


@operation(TopicPresence, TopicCode.TOPIC_NOT_FOUND, TopicCode.INVALID_ARGUMENT, read_only=True)
def topic_presence(p: TopicPresence, caller: Caller) -> PeersPresent:
    """The peers that synced lately, and how far each has read. Needs no join."""
    selectors.get_topic(p.topic_id)
    moment, limit = now(), min(p.limit, MOST_PEERS)
    peers = selectors.present(p.topic_id, window_seconds=p.window_seconds, limit=limit)
    return {
        "topic_id": p.topic_id,
        "window_seconds": p.window_seconds,
        "limit": limit,
        "now": epoch(moment),
        "count": len(peers),
        "peers": [peer_row(peer, moment) for peer in peers],
    }


class CursorReset(Params):
    topic_id: TopicId
    last_seq: Annotated[Seq, Field(description="0 replays everything.")] = 0


class ResetCursor(TypedDict):
    topic_id: str
    agent_name: str
    cursor: CursorRow


@operation(CursorReset, *OF_A_PEER, idempotent=True)
def cursor_reset(p: CursorReset, caller: Caller) -> ResetCursor:
    """Set your cursor: the next sync returns what follows it."""
    peer = services.reset_cursor(topic_id=p.topic_id, agent_name=_name_of(caller, p.topic_id), last_seq=p.last_seq)
    return {"topic_id": p.topic_id, "agent_name": peer.agent_name, "cursor": cursor_row(peer)}


class MessagesSearch(Params):
    query: Annotated[str, Field(min_length=1, max_length=1000)]
    topic_id: Annotated[TopicId | None, Field(description="Left out: all topics.")] = None
    mode: Literal["hybrid", "fts", "semantic"] = "hybrid"
    limit: Annotated[Positive, Field(description=f"{MOST_RESULTS} at most.")] = 20
    model: Annotated[str | None, Field(max_length=255)] = None
    include_content: bool = False


class SearchResult(TypedDict):
    topic_id: str
    topic_name: str
    message_id: str
    seq: int
    sender: str
    message_type: str
    created_at: float
    snippet: Annotated[str, Field(description="Hits stand between U+E000 and U+E001.")]
    rank: NotRequired[Annotated[float, Field(description="In the mode fts; the lower the better.")]]
    fts_rank: NotRequired[float | None]
    semantic_score: NotRequired[float | None]
    content_markdown: NotRequired[str]


class SearchResults(TypedDict):
    query: str
    mode: str
    topic_id: str | None
    include_content: bool
    count: int
    results: list[SearchResult]
    warnings: NotRequired[list[Warned]]


@operation(
    MessagesSearch,
    TopicCode.TOPIC_NOT_FOUND,
    TopicCode.INVALID_ARGUMENT,
    read_only=True,
    slow=lambda p: search.slow(p.mode),
)
def messages_search(p: MessagesSearch, caller: Caller) -> SearchResults:
    """Find messages by words (matched from their beginning, the shortest whole) and meaning, in one topic or all. Needs
    no join."""
    if not p.query.strip():
        raise argument("query must not be blank.")
    if p.topic_id is not None:
        selectors.get_topic(p.topic_id)
    found = search.find_messages(
        p.query, topic_id=p.topic_id, mode=p.mode, limit=min(p.limit, MOST_RESULTS), model=p.model
    )
    results = [_result(hit, p) for hit in found.hits]
    data: SearchResults = {
        "query": p.query,
        "mode": p.mode,
        "topic_id": p.topic_id,
        "include_content": p.include_content,
        "count": len(results),
        "results": results,
    }
    if found.warnings:
        data["warnings"] = [{"code": code, "message": message} for code, message in found.warnings.items()]
    return data


def _result(hit: search.Hit, p: MessagesSearch) -> SearchResult:
    message = hit.message
    result: SearchResult = {
        "topic_id": message.topic_id,
        "topic_name": message.topic.name,
        "message_id": message.message_id,
        "seq": message.seq,
        "sender": message.sender,
        "message_type": message.message_type,
        "created_at": epoch(message.created_at),
        "snippet": hit.snippet,
    }
    if p.mode == "fts":
        assert hit.rank is not None
        result["rank"] = hit.rank
    else:
        result["fts_rank"], result["semantic_score"] = hit.rank, hit.score
    if p.include_content:
        result["content_markdown"] = message.content_markdown
    return result


class Sync(Params):
    topic_id: TopicId
    outbox: Annotated[Outbox | None, Field(description="Sent first, all or none.")] = None
    max_items: Annotated[
        int,
        Field(ge=1, le=naming.MAX_ITEMS, description=f"1 to {naming.MAX_ITEMS}."),
        ShownAs({"type": "integer", "maximum": naming.MAX_ITEMS}),
    ] = naming.MAX_ITEMS
    include_self: Annotated[bool, Field(description="Your own messages, too.")] = False
    wait_seconds: Annotated[
        int,
        Field(ge=0, le=naming.MAX_WAIT_SECONDS, description=f"0: return at once; {naming.MAX_WAIT_SECONDS} at most."),
        ShownAs({"type": "integer", "maximum": naming.MAX_WAIT_SECONDS}),
    ] = 60
    auto_advance: Annotated[
        bool, Field(description="The cursor moves to the last message received; else by ack_through alone.")
    ] = True
    ack_through: Seq | None = None


class SentRow(TypedDict):
    message: TopicMessageRow
    duplicate: bool


class SyncedTopic(TypedDict):
    topic_id: str
    agent_name: str
    status: Annotated[str, one_of(("ready", "timeout", "empty"))]
    cursor: CursorRow
    sent: list[SentRow]
    received: list[TopicMessageRow]
    received_count: int
    has_more: bool
    warnings: NotRequired[list[Warned]]


def _new_messages(p: Sync) -> Interest:
    return interest_in(STREAM, "topic_id", p.topic_id, lambda event: event.type == "topic.message")


def _look(p: Sync, caller: Caller) -> dict[str, bool]:
    """Return whether there is something for the caller. `_receive` reads it."""
    peer = selectors.peer(p.topic_id, _name_of(caller, p.topic_id))
    return {"received": bool(peer and selectors.behind(peer, include_self=p.include_self, limit=1))}


def _receive(p: Sync, caller: Caller, performed: SyncedTopic) -> SyncedTopic:
    """Return the answer after a wait: what was sent before it, and what arrived during it, unless another process took
    that."""
    synced = services.sync(
        topic_id=p.topic_id,
        agent_name=_name_of(caller, p.topic_id),
        max_items=p.max_items,
        include_self=p.include_self,
        auto_advance=p.auto_advance,
    )
    return {**performed, **_answer(synced), "sent": performed["sent"]}


@operation(
    Sync,
    *OF_A_PEER,
    TopicCode.TOPIC_CLOSED,
    wait=Wait[Sync](
        timeout=lambda p: p.wait_seconds,
        capped=False,
        interested=_new_messages,
        look=_look,
        done=lambda data: bool(data["received"]),
        finish=_receive,
        expired=lambda p, data: {**data, "status": "timeout" if p.wait_seconds else "empty"},
    ),
)
def sync(p: Sync, caller: Caller) -> SyncedTopic:
    """Send and receive in a topic you joined: waits until there is a message behind your cursor. Repeat while
    has_more. Answer a question with message_type "answer" and reply_to."""
    synced = services.sync(
        topic_id=p.topic_id,
        agent_name=_name_of(caller, p.topic_id),
        outbox=[Outgoing(**dict(message)) for message in p.outbox or ()],
        max_items=p.max_items,
        include_self=p.include_self,
        auto_advance=p.auto_advance,
        ack_through=p.ack_through,
        agent_id=caller.agent_id,
    )
    answer = _answer(synced)
    if names := selectors.unreached([sent.message for sent in synced.sent]):
        answer["warnings"] = [unreached(names)]
    return answer


def _answer(synced: Synced) -> SyncedTopic:
    return {
        "topic_id": synced.peer.topic_id,
        "agent_name": synced.peer.agent_name,
        "status": "ready",
        "cursor": cursor_row(synced.peer),
        "sent": [_sent_row(sent) for sent in synced.sent],
        "received": [message_row(message) for message in synced.received],
        "received_count": len(synced.received),
        "has_more": synced.has_more,
    }


def _sent_row(sent: Posted) -> SentRow:
    return {"message": message_row(sent.message), "duplicate": sent.duplicate}


def _name_of(caller: Caller, topic_id: str) -> str:
    """Return the name of the caller's connection in a topic. Raises TOPIC_NOT_FOUND, AGENT_NOT_JOINED."""
    held = connections.joined_peer(caller, topic_id)
    if held is None:
        raise services.not_joined(selectors.get_topic(topic_id))
    return held.agent_name


TOPICS.references.append(
    Reference(
        "nexus://reference/topics",
        "topics",
        "Ways of working in a topic: a task's room, questions, a review loop, handing over, coming back.",
        packaged("nexus.topics", "topics"),
    )
)


def work_in_topic(given: Mapping[str, str]) -> str:
    """Return the page, filled in for a known topic and name."""
    return (
        f"{TOPICS.instructions()}\n{packaged('nexus.topics', 'topics')()}\n"
        f"Work in the topic {given['topic']!r} now, as {given['agent_name']!r}: open it if it is not there, join it, "
        "sync until has_more is false, and answer the questions that you can."
    )


TOPICS.prompts.append(
    Prompt(
        "work_in_topic",
        "Join a topic, catch up, and take part.",
        {"topic": "The topic's name.", "agent_name": "The name to go by in it."},
        work_in_topic,
    )
)
