from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
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
        from hooks.worker import deliver_forever

        return (deliver_forever,)
