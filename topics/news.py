"""What agents are told of topics between their turns: new messages where they joined, and those that name them.

A peer is an agent's when its connection was bound to that agent, or bound to none and joined by the agent's id.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Greatest

from coordination.models import Event
from core.contributions import News, Notice
from topics.models import Mention, Peer, TopicMessage, TopicStatus

MOST = 200  # messages looked at; more than an agent is told of at once


def concerned(event: Event) -> Iterator[str]:
    """The agents whose topic it is, but for the one who spoke, and those whom it names."""
    if event.type != "topic.message":
        return
    yield from event.payload["mentions"]
    peers = Peer.objects.filter(topic_id=event.payload["topic_id"]).exclude(agent_name=event.payload["sender"])
    yield from (agent_id or agent_name for agent_id, agent_name in peers.values_list("agent_id", "agent_name"))


def waiting(agent_id: str) -> Iterator[Notice]:
    """What was said that the agent has not received, oldest first."""
    named = set(TopicMessage.objects.filter(mentions__agent_id=agent_id).values_list("document", flat=True))
    for message in unheard(agent_id).select_related("topic").order_by("document")[:MOST]:
        what = "message that names you in a topic:" if message.document in named else "message in a topic:"
        said = {"topic": message.topic.name, "from": message.sender, "body": message.content_markdown}
        yield Notice(message.message_id, what, said)


def unheard(agent_id: str) -> QuerySet[TopicMessage]:
    """The messages behind the agent's cursors, and those that name it in open topics that it has not joined."""
    mine = Q(agent_id=agent_id) | Q(agent_id=None, agent_name=agent_id)
    joined = Peer.objects.filter(mine, topic=OuterRef("topic"))
    behind = joined.annotate(floor_seq=Greatest(F("last_seq"), F("own_through"))).filter(floor_seq__lt=OuterRef("seq"))
    heard_of = Exists(behind.exclude(agent_name=OuterRef("sender")))
    topics = Peer.objects.filter(mine).values("topic")
    named = Mention.objects.filter(agent_id=agent_id).values("message")
    return TopicMessage.objects.filter(
        Q(heard_of, topic__in=topics) | Q(~Exists(joined), document__in=named, topic__status=TopicStatus.OPEN)
    )


NEWS = News(
    "new topic message",
    "Read them with topic_join (agent_name, topic_id or name, your reclaim_token) and sync(topic_id, wait_seconds=0); "
    'toolset_enable(name="topics") gives you these tools.',
    concerned,
    waiting,
)
