"""The toolset of topics, compatible with clients of Agent Bus: its error codes and answers (bare objects, or prose)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from nexus.core.clock import iso
from nexus.core.operations.errors import Code, ErrorCode, NexusError
from nexus.core.operations.registry import Toolset
from nexus.core.operations.replies import Body, Outcome, Reply, packaged


class TopicCode(ErrorCode):
    """Errors of topics, peers' names and arguments. The clients of this toolset know only these."""

    TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND", 404, "There is no such topic; topic_list lists the topics."
    TOPIC_CLOSED = "TOPIC_CLOSED", 409, "The topic takes no more messages; open another one."
    AGENT_NAME_IN_USE = "AGENT_NAME_IN_USE", 409, "The name is reserved: pass its reclaim_token, or take another name."
    AGENT_NOT_JOINED = "AGENT_NOT_JOINED", 409, "This connection has not joined the topic; call topic_join."
    INVALID_ARGUMENT = "INVALID_ARGUMENT", 400, "An argument is missing, malformed, unknown or out of range."
    DB_BUSY = "DB_BUSY", 503, "The store is busy; send the same call again in a moment."
    DB_SCHEMA_MISMATCH = "DB_SCHEMA_MISMATCH", 500, "The store has another version; ask the operator."


def argument(message: str) -> NexusError:
    """Return an INVALID_ARGUMENT, to raise."""
    return NexusError(TopicCode.INVALID_ARGUMENT, message)


def no_topic(topic: str) -> NexusError:
    """Return a TOPIC_NOT_FOUND, to raise."""
    return NexusError(
        TopicCode.TOPIC_NOT_FOUND, f"There is no topic {topic[:255]!r}; topic_list shows those there are."
    )


class Unavailable(Exception):
    """Semantic search is not available. The text tells the searcher why, and what to do."""


# Errors that any operation may raise, in the codes that the clients of this toolset know.
OWN_CODES: Mapping[ErrorCode, TopicCode] = {
    Code.VALIDATION_ERROR: TopicCode.INVALID_ARGUMENT,
    Code.CONTENT_TOO_LARGE: TopicCode.INVALID_ARGUMENT,
    Code.MIGRATION_ERROR: TopicCode.DB_SCHEMA_MISMATCH,
}


def bare(outcome: Outcome) -> Body:
    """Return the data itself; an error is `{"error": {code, message}}`, with the fields of its code."""
    error = outcome.error
    if error is None:
        return dict(outcome.data or {})
    more = error.details if isinstance(error.code, TopicCode) else {}
    return {"error": {"code": code_of(error).value, "message": error.message, **more}}


def code_of(error: NexusError) -> ErrorCode:
    """Return the code that a client of this toolset gets."""
    if error.code is Code.DB_ERROR and error.details.get("retryable"):
        return TopicCode.DB_BUSY
    return OWN_CODES.get(error.code, error.code)


def prose(outcome: Outcome, body: Body) -> str:
    """Return the answer as text, message bodies included."""
    if outcome.error is not None:
        return outcome.error.message
    render = next((each for field, each in RENDERERS.items() if field in body), _topic)
    return "\n".join([*render(body), *(f"warning: {each['message']}" for each in body.get("warnings", ()))])


def _topic(body: Body) -> Iterator[str]:
    yield f"topic {body['name']!r} ({body['status']})" if "name" in body else "done"
    yield from (f"{name}={value}" for name, value in body.items() if name not in ("name", "status"))


def _pong(body: Body) -> Iterator[str]:
    yield f"ok: spec {body['spec_version']}, package {body['package_version']}"


def _topics(body: Body) -> Iterator[str]:
    yield f"{len(body['topics'])} topics"
    for topic in body["topics"]:
        yield f"{topic['topic_id']}  {topic['name']!r} ({topic['status']}), created {_at(topic['created_at'])}"


def _joined(body: Body) -> Iterator[str]:
    yield f"joined {body['name']!r} ({body['status']}) as {body['agent_name']!r}"
    yield f"topic_id={body['topic_id']}"
    yield f"reclaim_token={body['reclaim_token']}"
    yield "Keep the token: after a restart it is what gives you this name and its cursor back."


def _closed(body: Body) -> Iterator[str]:
    yield f"topic {body['topic_id']} is closed since {_at(body['closed_at'])}: {body['close_reason'] or 'no reason'}"


def _present(body: Body) -> Iterator[str]:
    yield f"{body['count']} peers within {body['window_seconds']} s"
    for peer in body["peers"]:
        yield f"{peer['agent_name']}: at {peer['last_seq']}, {peer['age_seconds']:.0f} s ago"


def _search_lines(body: Body) -> Iterator[str]:
    yield f"{body['count']} results for {body['query']!r} ({body['mode']})"
    for result in body["results"]:
        yield (
            f"[{result['seq']}] {result['sender']} ({result['message_type']}) in {result['topic_name']!r} "
            f"id={result['message_id']} topic_id={result['topic_id']}"
        )
        yield result.get("content_markdown", result["snippet"])


def _synced(body: Body) -> Iterator[str]:
    yield (
        f"{body['status']}: sent {len(body['sent'])}, received {body['received_count']}, "
        f"cursor {body['cursor']['last_seq']} as {body['agent_name']!r} in {body['topic_id']}"
        + ("; there is more, sync again" if body["has_more"] else "")
    )
    for sent in body["sent"]:
        message = sent["message"]
        yield f"sent [{message['seq']}] id={message['message_id']}" + (" (duplicate)" if sent["duplicate"] else "")
    for message in body["received"]:
        yield (
            f"[{message['seq']}] {message['sender']} ({message['message_type']}) "
            f"id={message['message_id']} reply_to={message['reply_to'] or '-'}"
        )
        yield message["content_markdown"]


def _reset(body: Body) -> Iterator[str]:
    yield f"cursor {body['cursor']['last_seq']} as {body['agent_name']!r} in {body['topic_id']}"


def _at(seconds: float) -> str:
    return iso(datetime.fromtimestamp(seconds, UTC))


# An answer is recognised by its first field.
RENDERERS: Mapping[str, Callable[[Body], Iterator[str]]] = {
    "spec_version": _pong,
    "topics": _topics,
    "reclaim_token": _joined,
    "peers": _present,
    "results": _search_lines,
    "received": _synced,
    "cursor": _reset,
    "closed_at": _closed,
}

REPLY = Reply(bare, prose, bare=True)


TOPICS = Toolset(
    "topics",
    "Rooms that peers join by a name of their own: one ordered stream each, cursors that survive restarts, search.",
    reply=REPLY,
    instructions=packaged("nexus.topics", "instructions"),
    modules=(  # in the order in which agents see them; most agents need neither
        "nexus.topics.operations",
        "nexus.topics.administration",
        "nexus.topics.operations",
    ),
)
operation = TOPICS.operation
