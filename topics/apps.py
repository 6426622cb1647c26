from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from core.apps import NexusAppConfig
from core.contributions import RetentionLane


class TopicsConfig(NexusAppConfig):
    name = "topics"

    def streams(self) -> Mapping[str, str]:
        from topics.models import STREAM

        return {STREAM: "topics and their messages"}

    def event_types(self) -> Sequence[str]:
        return ["topic.created", "topic.joined", "topic.message", "topic.closed"]

    def retention_lanes(self) -> Sequence[RetentionLane]:
        from topics.retention import LANES

        return LANES

    def clock_columns(self) -> Mapping[str, str]:
        return {"topics": "created_at", "topic_messages": "created_at", "topic_peers": "synced_at"}

    def database_objects(self) -> Mapping[str, str]:
        from topics.triggers import TRIGGERS

        return TRIGGERS

    def metrics(self) -> Iterable[Any]:
        from topics.metrics import collect

        return collect()
