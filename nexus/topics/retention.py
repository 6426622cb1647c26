"""What retention may delete of topics: those that were closed long ago, their messages first."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet

from nexus.core.contributions import RetentionLane
from nexus.topics.models import Topic, TopicMessage


def _messages(horizon: datetime) -> QuerySet[TopicMessage]:
    return TopicMessage.objects.filter(topic__closed_at__lt=horizon).order_by("document")


def _topics(horizon: datetime) -> QuerySet[Topic]:
    """Empty ones: a batch must not take a hundred thousand messages with it under the writer's lock."""
    messages = TopicMessage.objects.filter(topic=OuterRef("pk"))
    return Topic.objects.filter(~Exists(messages), closed_at__lt=horizon).order_by("closed_at")


LANES = (RetentionLane("closed_topic_messages", _messages), RetentionLane("closed_topics", _topics))
