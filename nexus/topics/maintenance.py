"""What retention and doctor need of topics: retention rules and checks.

Topics belong to no workspace, so no export holds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from nexus.core.contributions import DoctorCheck, Finding, RetentionRule
from nexus.topics.models import Topic, TopicMessage
from nexus.topics.search import REBUILD_FTS5


def _search(examination: Any) -> Iterator[Finding]:
    """Check that every message is in the search index, and nothing else."""
    if not {"topic_messages", "topic_search_docsize"} <= examination.tables():
        return
    lost = examination.value(
        "SELECT (SELECT count(*) FROM topic_messages WHERE document NOT IN (SELECT id FROM topic_search_docsize))"
        " + (SELECT count(*) FROM topic_search_docsize WHERE id NOT IN (SELECT document FROM topic_messages))"
    )
    if lost:
        yield Finding(
            f"The search index of topics does not match {lost} messages.",
            "A search may miss some of them or show deleted ones; `nexus topics reindex` repairs it, too.",
            examination.repair(REBUILD_FTS5),
            "the index was made again",
        )


# Vectors without a message, those of another size than most of their model, and messages that were skipped.
OUT_OF_STEP = """
    WITH sizes AS (
        SELECT model, length(vector) AS size, row_number() OVER (PARTITION BY model ORDER BY count(*) DESC) AS rank
        FROM topic_embeddings GROUP BY 1, 2
    )
    SELECT
        (SELECT count(*) FROM topic_embeddings WHERE document NOT IN (SELECT document FROM topic_messages)),
        (SELECT count(*) FROM topic_embeddings JOIN sizes USING (model)
         WHERE model <> '' AND rank = 1 AND length(vector) <> size),
        (SELECT count(*) FROM topic_messages WHERE document < (SELECT max(document) FROM topic_embeddings)
         AND document NOT IN (SELECT document FROM topic_embeddings))
"""


def _vectors(examination: Any) -> Iterator[Finding]:
    """Check that every vector belongs to a message and has its model's dimension, and that no message was skipped."""
    if not {"topic_messages", "topic_embeddings"} <= examination.tables():
        return
    ((strays, misfits, passed_over),) = examination.rows(OUT_OF_STEP)
    if strays or misfits or passed_over:
        yield Finding(
            f"The search of topics by meaning is out of step: {strays} vectors are of no message, {misfits} have not "
            f"the dimension of their model, and {passed_over} messages were passed over.",
            "Messages are not found by what they mean. `nexus topics reindex` mends it, where embedding_model is set.",
        )


CHECKS = (DoctorCheck("search of topics", _search), DoctorCheck("vectors of topics", _vectors))


def _messages(horizon: datetime) -> QuerySet[TopicMessage]:
    return TopicMessage.objects.filter(topic__closed_at__lt=horizon).order_by("document")


def _topics(horizon: datetime) -> QuerySet[Topic]:
    """Return the closed topics that are empty: a batch must not delete a hundred thousand messages under the writer's
    lock."""
    messages = TopicMessage.objects.filter(topic=OuterRef("pk"))
    return Topic.objects.filter(~Exists(messages), closed_at__lt=horizon).order_by("closed_at")


RETENTION_RULES = (RetentionRule("closed_topic_messages", _messages), RetentionRule("closed_topics", _topics))
