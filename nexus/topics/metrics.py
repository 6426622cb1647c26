"""What /metrics shows of topics."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Count, Sum
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from nexus.core.contributions import gauge
from nexus.topics.config import TopicSettings
from nexus.topics.embedding import index, source
from nexus.topics.models import Topic, TopicStatus


def collect() -> Iterator[Metric]:
    """Return topics by state, the number of messages ever sent to existing topics, and of those still without a
    vector."""
    counted = dict(Topic.objects.values_list("status").annotate(Count("pk")).order_by())
    yield gauge("nexus_topics", "Topics by state.", "status", counted, TopicStatus.values)
    sent = Topic.objects.aggregate(sent=Sum("last_seq"))["sent"] or 0
    yield GaugeMetricFamily("nexus_topic_messages", "Messages sent to the topics that are there.", value=sent)
    if TopicSettings.current().embedding_model:
        model = source.loaded()
        waiting = index.count_missing(model.identity) if model else index.count_missing()
        yield GaugeMetricFamily(
            "nexus_topic_messages_unindexed", "Messages that wait to be indexed by meaning.", value=waiting
        )
