"""Messages in topics that wake an agent of the pool: those that name it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Coalesce

from nexus.core.contributions import WakeKind, WakeReason
from nexus.topics.models import Peer, TopicMessage, TopicStatus

MOST = 100  # the newest messages


def calling(agent_id: str, workspaces: Collection[str]) -> Iterator[WakeReason]:
    """Yield the messages of others that name the agent in open topics."""
    naming_it = TopicMessage.objects.filter(mentions__agent_id=agent_id, topic__status=TopicStatus.OPEN)
    # A peer may have any name: its agent_id identifies the agent's own messages, and the length of a chain of wakings.
    peer = Peer.objects.filter(topic=OuterRef("topic"), agent_name=OuterRef("sender"))
    said = naming_it.annotate(speaker=Coalesce(peer.values("agent_id"), F("sender"))).exclude(speaker=agent_id)
    own = Peer.objects.filter(Q(agent_id=agent_id) | Q(agent_id=None, agent_name=agent_id))
    received = Exists(own.filter(topic=OuterRef("topic"), last_seq__gte=OuterRef("seq")))
    newest = said.annotate(received=received).select_related("topic").order_by("-document")[:MOST]
    for message in reversed(newest):
        yield WakeReason(
            message.message_id,
            f"A message names you in a topic (topic_id {message.topic_id}): topic_join, then sync reads on and "
            "answers.",
            {"topic": message.topic.name, "from": message.sender, "body": message.content_markdown},
            message.speaker,
            message.created_at,
            message.created_at,
            message.received,
        )


WAKES = WakeKind("topic", "messages in topics that name it", frozenset(("topic.message",)), calling)
