from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nexus.core.apps import NexusAppConfig

if TYPE_CHECKING:
    from nexus.core.contributions import PendingNotice, WakeKind


class TopicsConfig(NexusAppConfig):
    name = "nexus.topics"
    declared_in = ("toolset",)
    commands = {
        "topic_create": "nexus topics post",
        "topic_list": "nexus topics",
        "topic_overview": "nexus topics",
        "topic_resolve": "nexus topics show",
        "topic_read": "nexus topics show",
        "topic_join": "nexus topics join",
        "topic_presence": "nexus topics presence",
        "topic_post": "nexus topics post",
        "topic_close": "nexus topics close",
        "topic_rename": "nexus topics rename",
        "topic_delete": "nexus topics delete",
        "topic_reindex": "nexus topics reindex",
        "messages_search": "nexus topics search",
    }
    clock_columns = {"topics": "created_at", "topic_messages": "created_at", "topic_peers": "synced_at"}

    def ready(self) -> None:
        from coordination import join_answer

        join_answer.register_return("topics", lambda caller: import_module("nexus.topics.connections").reclaim(caller))
        super().ready()

    def connection_state(self, connection: str) -> Any:
        from nexus.topics.connections import names_of

        return {topic_id: list(held) for topic_id, held in names_of(connection).items()}

    def restore_connection(self, connection: str, state: Any) -> None:
        from nexus.topics.connections import join_again

        join_again(connection, state)

    def wake_kinds(self) -> Sequence[WakeKind]:
        from nexus.topics.notices import WAKES

        return (WAKES,)

    def pending_notices(self) -> Sequence[PendingNotice]:
        from nexus.topics.notices import NEWS

        return (NEWS,)

    def background_tasks(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        from nexus.core.background_work import work_forever
        from nexus.topics.embedding.background import EMBEDDING

        return (partial(work_forever, EMBEDDING),)
