"""Export of a topic to one file, JSON or Markdown. In Markdown, what people need not see is in comments."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Model

from nexus.core.clock import iso
from nexus.topics import selectors
from nexus.topics.models import Peer, Topic, TopicMessage

FORMAT = "nexus-topic-1"
AT_ONCE = 500  # messages read into memory at once
TOPIC = ("topic_id", "name", "status", "metadata", "last_seq", "created_at", "last_message_at", "closed_at",
         "close_reason")  # fmt: skip
PEER = ("agent_name", "agent_id", "last_seq", "created_at", "claimed_at", "synced_at")
MESSAGE = ("message_id", "seq", "sender", "message_type", "reply_to", "metadata", "client_message_id", "created_at",
           "content_markdown")  # fmt: skip


def to_json(topic: Topic, *, after: int = 0) -> Iterator[str]:
    """Yield a topic as JSON, piece by piece, with the messages after a sequence number."""
    yield _dumped(_head(topic))[:-1] + ',"messages":['
    separator = "\n"
    for message in messages_of(topic, after):
        yield separator + _dumped(_fields(message, MESSAGE))
        separator = ",\n"
    yield "\n]}\n"


def to_markdown(topic: Topic, *, after: int = 0) -> Iterator[str]:
    """Yield a topic as Markdown, piece by piece, with the messages after a sequence number."""
    yield f"# {_in_one_line(topic.name)}\n\n<!-- nexus-topic {_commented(_head(topic))} -->\n"
    for message in messages_of(topic, after):
        row = _fields(message, MESSAGE)
        body = row.pop("content_markdown")
        heading = f"[{message.seq}] {message.sender} ({message.message_type}), {iso(message.created_at)}"
        yield f"\n## {_in_one_line(heading)}\n\n<!-- nexus-message {_commented(row)} -->\n\n{body}\n"


def messages_of(topic: Topic, after: int = 0) -> Iterator[TopicMessage]:
    """Yield the messages of a topic after a sequence number, oldest first, in batches, up to the newest when `topic`
    was read."""
    while page := selectors.page(topic.topic_id, after=after, limit=AT_ONCE):
        for message in page:
            if message.seq > topic.last_seq:
                return
            yield message
        after = page[-1].seq


def _head(topic: Topic) -> dict[str, Any]:
    """Return a topic without its messages. It is read again, because cursors and messages changed meanwhile."""
    peers = list(Peer.objects.filter(topic=topic).order_by("agent_name"))
    topic.refresh_from_db()
    return {"format": FORMAT, **_fields(topic, TOPIC), "peers": [_fields(peer, PEER) for peer in peers]}


def _fields(row: Model, names: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in names}
    return {name: iso(value) if isinstance(value, datetime) else value for name, value in values.items()}


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())  # names of imported topics may contain line breaks, and after one a comment


def _commented(value: Any) -> str:
    return _dumped(value).replace(">", "\\u003e")  # the text cannot end the comment
