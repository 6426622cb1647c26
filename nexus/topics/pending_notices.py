"""Notices to agents between their turns: new messages in topics that they joined, and messages that name them.

A peer belongs to an agent when its connection was bound to that agent, or bound to none and joined by the agent's id.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Q

from coordination.models import Event
from nexus.core.contributions import Notice, PendingNotice
from nexus.topics import selectors
from nexus.topics.models import Peer, Topic, TopicMessage, TopicStatus

MOST = 100  # messages of one topic that are read: more than an agent gets at once


def concerned(event: Event) -> Iterator[str]:
    """Yield the agents of the topic's peers, except the sender, and the agents that the message names."""
    yield from event.payload["mentions"]
    peers = Peer.objects.filter(topic_id=event.payload["topic_id"]).exclude(agent_name=event.payload["sender"])
    yield from (agent_id or agent_name for agent_id, agent_name in peers.values_list("agent_id", "agent_name"))


def waiting(agent_id: str) -> Iterator[Notice]:
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
        yield Notice(message.message_id, what, said)


NEWS = PendingNotice(
    "new topic message",
    "Read them with topic_join (agent_name, topic_id or name, your reclaim_token) and sync(topic_id, wait_seconds=0); "
    'toolset_enable(name="topics") gives you these tools.',
    frozenset({"topic.message"}),
    concerned,
    waiting,
)
