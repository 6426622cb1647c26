"""Export of a topic to one file, JSON or Markdown, and import without loss.

Both forms hold the same. In Markdown, what people need not see is in comments, with the length of each body: whatever a
message contains, the parser finds the next one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, field_validator

from nexus.core.clock import iso
from nexus.core.operations.parameters import MAX_ID, MAX_INTEGER
from nexus.core.operations.validation import unstorable
from nexus.topics import selectors
from nexus.topics.models import Peer, Topic, TopicMessage
from nexus.topics.naming import MAX_AGENT_NAME, MAX_CLIENT_MESSAGE_ID, MAX_MESSAGE_TYPE, MAX_TOPIC_NAME
from nexus.topics.parameters import Seq
from nexus.topics.toolset import argument

FORMAT: Literal["nexus-topic-1"] = "nexus-topic-1"
AT_ONCE = 500  # messages read into memory at once
TWICE = "Nothing was imported: two topics, peers or messages of the file share an id or a number."

Moment = Annotated[AwareDatetime, PlainSerializer(iso)]
Identifier = Annotated[str, Field(min_length=1, max_length=MAX_ID)]


class Part(BaseModel):
    """Base of the parts of a file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)

    @field_validator("*")
    @classmethod
    def storable(cls, value: Any) -> Any:
        """Return the value unchanged. Raises ValueError where no store can hold it, as with NUL characters."""
        if isinstance(value, str | dict) and unstorable({"it": value}, lambda _: math.inf):
            raise ValueError("cannot be stored")
        return value


class ArchivedMessage(Part):
    message_id: Identifier
    seq: Annotated[int, Field(ge=1, le=MAX_INTEGER)]
    sender: Annotated[str, Field(min_length=1, max_length=MAX_AGENT_NAME)]
    message_type: Annotated[str, Field(max_length=MAX_MESSAGE_TYPE)]
    reply_to: Identifier | None = None
    metadata: dict[str, Any] | None = None
    client_message_id: Annotated[str, Field(max_length=MAX_CLIENT_MESSAGE_ID)] | None = None
    created_at: Moment
    content_markdown: str


class ArchivedPeer(Part):
    agent_name: Annotated[str, Field(min_length=1, max_length=MAX_AGENT_NAME)]
    agent_id: Identifier | None = None
    token_hash: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    last_seq: Seq = 0
    created_at: Moment
    claimed_at: Moment | None = None
    synced_at: Moment | None = None


class ArchivedTopic(Part):
    format: Literal["nexus-topic-1"] = FORMAT
    topic_id: Identifier
    name: Annotated[str, Field(min_length=1, max_length=MAX_TOPIC_NAME)]
    status: Literal["open", "closed"]
    metadata: dict[str, Any] | None = None
    last_seq: Seq
    created_at: Moment
    last_message_at: Moment | None = None
    closed_at: Moment | None = None
    close_reason: str | None = None
    peers: list[ArchivedPeer]
    messages: list[ArchivedMessage]


def to_json(topic: Topic, *, after: int = 0) -> Iterator[str]:
    """Yield a topic as JSON, piece by piece, with the messages after a sequence number."""
    yield _dumped(_head(topic))[:-1] + ',"messages":['
    separator = "\n"
    for message in messages_of(topic, after):
        yield separator + _dumped(_row(message))
        separator = ",\n"
    yield "\n]}\n"


def to_markdown(topic: Topic, *, after: int = 0) -> Iterator[str]:
    """Yield a topic as Markdown, piece by piece, with the messages after a sequence number."""
    yield f"# {_in_one_line(topic.name)}\n\n<!-- nexus-topic {_commented(_head(topic))} -->\n"
    for message in messages_of(topic, after):
        row = _row(message)
        body = row.pop("content_markdown")
        about = _commented({**row, "characters": len(body)})
        heading = f"[{message.seq}] {message.sender} ({message.message_type}), {iso(message.created_at)}"
        yield f"\n## {_in_one_line(heading)}\n\n<!-- nexus-message {about} -->\n\n{body}\n"


def messages_of(topic: Topic, after: int = 0) -> Iterator[TopicMessage]:
    """Yield the messages of a topic after a sequence number, oldest first, in batches, up to the newest when `topic`
    was read."""
    while page := selectors.page(topic.topic_id, after=after, limit=AT_ONCE):
        for message in page:
            if message.seq > topic.last_seq:
                return
            yield message
        after = page[-1].seq


def parse(text: str) -> ArchivedTopic:
    """Return the topic in a file of either form. Raises INVALID_ARGUMENT for a file that is neither, or was cut or
    changed."""
    try:
        topic = ArchivedTopic.model_validate_json(text if text.lstrip()[:1] == "{" else _json_of_markdown(text))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise argument(f"Nothing was imported: {field} is not as an export has it ({first['type']}).") from None
    keys: list[tuple[object, ...]] = [("peer", peer.agent_name) for peer in topic.peers]
    for message in topic.messages:
        keys.append(("message", message.message_id))
        if message.client_message_id is not None:
            keys.append(("sent", message.sender, message.client_message_id))
    if len(keys) != len(set(keys)):
        raise argument(TWICE)
    return topic


def batches(topic: ArchivedTopic) -> Iterator[list[ArchivedMessage]]:
    """Yield the messages of a file, oldest first."""
    messages = sorted(topic.messages, key=lambda message: message.seq)
    for start in range(0, len(messages), AT_ONCE):
        yield messages[start : start + AT_ONCE]


HEAD = re.compile(r"^<!-- nexus-topic (.*) -->$", re.M)
MESSAGE = re.compile(r"^<!-- nexus-message (.*) -->\n\n", re.M)


def _json_of_markdown(text: str) -> str:
    head = HEAD.search(text)
    if head is None:
        raise argument("Nothing was imported: this is no export of a topic, neither JSON nor Markdown.")
    position, messages = head.end(), []
    try:
        while found := MESSAGE.search(text, position):
            row = json.loads(found[1])
            length = row.pop("characters")
            position = found.end() + length
            if position >= len(text):
                raise ValueError
            messages.append({**row, "content_markdown": text[found.end() : position]})
        return json.dumps({**json.loads(head[1]), "messages": messages})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise argument(
            f"Nothing was imported: the message after {len(messages)} others is cut or was changed by hand."
        ) from None


def _head(topic: Topic) -> dict[str, Any]:
    """Return a topic without its messages. It is read again, because cursors and messages changed meanwhile."""
    peers = list(Peer.objects.filter(topic=topic).order_by("agent_name"))
    topic.refresh_from_db()
    return {
        "format": FORMAT,
        **{name: _plain(getattr(topic, name)) for name in _fields(ArchivedTopic, "format", "peers", "messages")},
        "peers": [{name: _plain(getattr(peer, name)) for name in _fields(ArchivedPeer)} for peer in peers],
    }


def _row(message: TopicMessage) -> dict[str, Any]:
    return {name: _plain(getattr(message, name)) for name in _fields(ArchivedMessage)}


def _fields(model: type[Part], *without: str) -> list[str]:
    return [name for name in model.model_fields if name not in without]


def _plain(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else value


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())  # names of imported topics may contain line breaks, and after one a comment


def _commented(value: Any) -> str:
    return _dumped(value).replace(">", "\\u003e")  # the text cannot end the comment
