from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from core.apps import NexusAppConfig

if TYPE_CHECKING:
    from core.contributions import Sentence


class MaintenanceConfig(NexusAppConfig):
    name = "maintenance"

    def ready(self) -> None:
        from coordination.toolset import COORDINATION

        COORDINATION.administered_in("maintenance.administration")
        super().ready()

    def workers(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        from django.conf import settings

        from core.work import work_forever
        from maintenance.reaper import REAPER

        return (partial(work_forever, REAPER),) if settings.NEXUS_REAPER else ()

    def event_types(self) -> Sequence[str]:
        return ["history.restored", "retention.pruned", "database.reset"]

    def sentences(self) -> Mapping[str, Sentence]:
        from maintenance.sentences import SENTENCES

        return SENTENCES

    def on_start(self) -> None:
        from core.config import CoreSettings
        from maintenance.retention import prune_on_start
        from maintenance.store_file import discard_abandoned

        if CoreSettings.current().database_url is None:
            discard_abandoned(CoreSettings.current().database)
        prune_on_start()
