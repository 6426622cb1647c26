"""What waits for agents in topics: notices between their turns of new messages in topics that they joined and of
messages that name them; and the messages that wake an agent of the pool, those that name it.

A peer belongs to an agent when its connection was bound to that agent, or bound to none and joined by the agent's id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Coalesce

from coordination.models import Event
from nexus.core.contributions import Notice, PendingNotice, WakeKind, WakeReason
from nexus.topics import selectors
from nexus.topics.models import Peer, Topic, TopicMessage, TopicStatus

MOST = 100  # messages of one topic that are read: more than an agent gets at once


def concerned(event: Event) -> Iterator[str]:
    """Yield the agents of the topic's peers, except the sender, and the agents that the message names."""
    yield from event.payload["mentions"]
    peers = Peer.objects.filter(topic_id=event.payload["topic_id"]).exclude(agent_name=event.payload["sender"])
    yield from (agent_id or agent_name for agent_id, agent_name in peers.values_list("agent_id", "agent_name"))


def unread_messages(agent_id: str) -> Iterator[Notice]:
    """Yield the messages that the agent has not received, and those that name it in open topics that it has not
    joined."""
    peers = list(Peer.objects.filter(Q(agent_id=agent_id) | Q(agent_id=None, agent_name=agent_id)))
    behind = [message for peer in peers for message in selectors.behind(peer, include_self=False, limit=MOST)]
    naming_it = TopicMessage.objects.filter(mentions__agent_id=agent_id)
    elsewhere = naming_it.filter(topic__status=TopicStatus.OPEN).exclude(topic__in=[peer.topic_id for peer in peers])
    unheard = {message.document: message for message in [*behind, *elsewhere.order_by("-document")[:MOST]]}
    named = set(naming_it.filter(document__in=unheard).values_list("document", flat=True))
    names = dict(Topic.objects.filter(messages__in=list(unheard)).values_list("pk", "name"))
    for _, message in sorted(unheard.items()):
        what = "message that names you in a topic:" if message.document in named else "message in a topic:"
        said = {"topic": names[message.topic_id], "from": message.sender, "body": message.content_markdown}
        yield Notice(message.message_id, what, said, message.document in named)


NEWS = PendingNotice(
    "new topic message",
    "Read them with topic_join (agent_name, topic_id or name, your reclaim_token) and sync(topic_id, wait_seconds=0); "
    'toolset_enable(name="topics") gives you these tools.',
    frozenset({"topic.message"}),
    concerned,
    unread_messages,
)


MOST_WAKING = 100  # the newest messages


def mentions_of(agent_id: str, workspaces: Collection[str]) -> Iterator[WakeReason]:
    """Yield the messages of others that name the agent in open topics."""
    naming_it = TopicMessage.objects.filter(mentions__agent_id=agent_id, topic__status=TopicStatus.OPEN)
    # A peer may have any name: its agent_id identifies the agent's own messages, and the length of a chain of wakings.
    peer = Peer.objects.filter(topic=OuterRef("topic"), agent_name=OuterRef("sender"))
    said = naming_it.annotate(speaker=Coalesce(peer.values("agent_id"), F("sender"))).exclude(speaker=agent_id)
    own = Peer.objects.filter(Q(agent_id=agent_id) | Q(agent_id=None, agent_name=agent_id))
    received = Exists(own.filter(topic=OuterRef("topic"), last_seq__gte=OuterRef("seq")))
    newest = said.annotate(received=received).select_related("topic").order_by("-document")[:MOST_WAKING]
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


WAKES = WakeKind("topic", "messages in topics that name it", frozenset(("topic.message",)), mentions_of)
