"""The answers of this toolset: bare objects, and prose for people and for clients that show only text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from nexus.core.clock import iso
from nexus.core.operations.errors import Code, ErrorCode, NexusError
from nexus.core.operations.replies import Body, Outcome, Reply
from nexus.topics.errors import TopicCode

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
