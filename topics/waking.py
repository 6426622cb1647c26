"""Messages in topics that wake the agents that Nexus runs: those that name them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from core.contributions import Calling, WakeKind
from topics.models import TopicMessage, TopicStatus

MOST = 100  # the newest


def calling(agent_id: str, workspaces: Collection[str]) -> Iterator[Calling]:
    """What names the agent in open topics, said by another."""
    naming_it = TopicMessage.objects.filter(mentions__agent_id=agent_id, topic__status=TopicStatus.OPEN)
    newest = naming_it.exclude(sender=agent_id).select_related("topic").order_by("-document")[:MOST]
    for message in reversed(newest):
        yield Calling(
            message.message_id,
            f"A message names you in a topic (topic_id {message.topic_id}): topic_join, then sync reads on and "
            "answers.",
            {"topic": message.topic.name, "from": message.sender, "body": message.content_markdown},
            message.sender,
            message.created_at,
            message.created_at,
        )


WAKES = WakeKind("topic", "messages in topics that name it", frozenset(("topic.message",)), calling)
