from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from nexus.core.apps import NexusAppConfig


class HooksConfig(NexusAppConfig):
    name = "nexus.hooks"
    commands = {
        "notice_add": "nexus notices create",
        "notice_list": "nexus notices",
        "notice_update": "nexus notices update",
        "notice_remove": "nexus notices delete",
        "notice_test": "nexus notices test",
        "webhook_add": "nexus webhooks create",
        "webhook_list": "nexus webhooks",
        "webhook_redeliver": "nexus webhooks redeliver",
        "webhook_remove": "nexus webhooks delete",
    }

    def ready(self) -> None:
        from coordination import activity, clock_repair
        from coordination.log.emit import committed
        from coordination.services import workspaces
        from coordination.toolset import COORDINATION
        from nexus.hooks.models import PAUSES
        from nexus.hooks.signals import announce
        from nexus.hooks.wakers import wakers

        def follow(old: str, new: str) -> None:
            from nexus.hooks import setup_record

            setup_record.follow(old, new)

        activity.register(wakers)
        committed.connect(announce)
        workspaces.register_follower(follow)
        clock_repair.register("webhooks", "webhooks", "next_attempt_at", lambda: PAUSES[-1])
        clock_repair.register("notices", "notice_addresses", "next_attempt_at", lambda: PAUSES[-1])
        COORDINATION.administered_in("nexus.hooks.administration")
        super().ready()

    def background_tasks(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        from nexus.core.background_work import work_forever
        from nexus.hooks.notices import NOTICES
        from nexus.hooks.webhooks import WEBHOOKS

        return partial(work_forever, WEBHOOKS), partial(work_forever, NOTICES)
