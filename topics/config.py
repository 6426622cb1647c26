"""The settings of this app."""

from __future__ import annotations

from core.config import Settings, section, setting


@section
class TopicSettings(Settings):
    """How long closed topics are kept."""

    retention_closed_topic_messages_keep_days: int = setting(
        90, "Messages of topics that were closed longer ago than this (days) may be pruned.", minimum=0, maximum=36_500
    )
    retention_closed_topics_keep_days: int = setting(
        90,
        "Topics that were closed longer ago than this (days) may be pruned once they are empty.",
        minimum=0,
        maximum=36_500,
    )
