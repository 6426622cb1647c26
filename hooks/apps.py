from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from core.apps import NexusAppConfig


class HooksConfig(NexusAppConfig):
    name = "hooks"

    def event_types(self) -> Sequence[str]:
        return ["webhook.added", "webhook.redelivered", "webhook.removed"]

    def ready(self) -> None:
        from coordination.log.emit import committed
        from hooks.signals import announce

        committed.connect(announce)
        super().ready()

    def workers(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        from core.work import work_forever
        from hooks.worker import WEBHOOKS

        return (partial(work_forever, WEBHOOKS),)
