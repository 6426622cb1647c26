from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from nexus.core.apps import NexusAppConfig


class ForgesConfig(NexusAppConfig):
    name = "nexus.forges"
    commands = {
        "forge_connect": "nexus forge connect",
        "forge_list": "nexus forge",
        "forge_take": "nexus forge take",
        "forge_publish": "nexus forge publish",
        "forge_disconnect": "nexus forge disconnect",
    }

    def ready(self) -> None:
        from coordination import clock_repair
        from coordination.toolset import COORDINATION
        from nexus.forges.models import PAUSES

        COORDINATION.administered_in("nexus.forges.administration")
        clock_repair.register("forges", "forges", "next_attempt_at", lambda: PAUSES[-1])
        super().ready()

    def background_tasks(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        from nexus.core.background_work import work_forever
        from nexus.forges.polling import ROUNDS
        from nexus.forges.submissions import SUBMISSIONS

        return (partial(work_forever, ROUNDS), partial(work_forever, SUBMISSIONS))
