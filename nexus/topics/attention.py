"""What an operator does with a topic or a message."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nexus.core.clock import now
from nexus.core.contributions import Action
from nexus.topics import selectors
from nexus.topics.models import Topic, TopicMessage

NAMED = 5  # peers, or answers


def _names(ids: Collection[str]) -> Mapping[str, str]:
    return dict(Topic.objects.filter(pk__in=ids).values_list("pk", "name"))


def _first_words(ids: Collection[str]) -> Mapping[str, str]:
    rows = TopicMessage.objects.filter(message_id__in=ids).order_by("document")
    return {row.message_id: f"#{row.seq} {row.sender}: {row.content_markdown[:80]}" for row in rows}


def _goes_with(topic_id: str) -> str:
    """Return what is deleted with a topic, and who is there."""
    topic = Topic.objects.filter(pk=topic_id).first()
    if topic is None:
        return ""
    present = [reader.peer.agent_name for reader in selectors.readers([topic], now())[topic_id] if reader.present]
    there = f" Present now: {', '.join(present[:NAMED])}." if present else ""
    return (
        f"{topic.messages.count()} messages go with it, and {topic.peers.count()} names with their cursors.{there} "
        "This cannot be undone: export the topic first if it may be wanted again; closing it keeps everything."
    )


def _answers(message_id: str) -> str:
    row = TopicMessage.objects.filter(message_id=message_id).first()
    count = selectors.count_replies(row) if row else 0
    if row is None or not count:
        return "Nobody answered it: it goes alone. This cannot be undone."
    direct = TopicMessage.objects.filter(topic=row.topic_id, reply_to=message_id).order_by("document")
    begun = "; ".join(_first_words(list(direct.values_list("message_id", flat=True)[:NAMED])).values())
    return f"{count} other messages answer it, or an answer to it, and go with it: {begun}. This cannot be undone."


TOPICS = ("topic", "topics")


def _topic(topic_id: str) -> dict[str, str]:
    return {"topic_id": topic_id}


ACTIONS = (
    Action(
        "topic_close",
        "Close…",
        "closed",
        TOPICS,
        _topic,
        _names,
        {"reason": "Reason (optional)"},
        danger=True,
        toolset="topics",
        tells=lambda topic_id: "Nobody can send messages to it any more. It can still be read. This cannot be undone.",
    ),
    Action(
        "topic_rename",
        "Rename…",
        "renamed",
        TOPICS,
        _topic,
        _names,
        {"name": "New name", "rewrite_messages": "In messages that name the topic, too"},
        needed=["name"],
        toolset="topics",
    ),
    Action(
        "topic_delete", "Delete…", "deleted", TOPICS, _topic, _names, danger=True, toolset="topics", tells=_goes_with
    ),
    Action(
        "topic_message_delete",
        "Delete…",
        "deleted, with what answers it",
        ("message", "messages"),
        lambda message_id: {"message_id": message_id},
        _first_words,
        danger=True,
        toolset="topics",
        tells=_answers,
    ),
)
