from __future__ import annotations

import glob
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from django.apps import apps
from django.db.models.signals import pre_migrate

from nexus.core.apps import NexusAppConfig


class MaintenanceConfig(NexusAppConfig):
    name = "nexus.maintenance"

    def ready(self) -> None:
        from coordination.toolset import COORDINATION

        COORDINATION.administered_in("nexus.maintenance.administration")
        once = apps.get_app_config("coordination")  # the signal comes for each app
        pre_migrate.connect(_back_up, sender=once)
        super().ready()

    def background_tasks(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        from django.conf import settings

        from nexus.core.background_work import work_forever
        from nexus.maintenance.reaper import REAPER

        return (partial(work_forever, REAPER),) if settings.NEXUS_REAPER else ()

    def on_start(self) -> None:
        from nexus.core.config import CoreSettings
        from nexus.maintenance.retention import prune_on_start
        from nexus.maintenance.store_file import discard_abandoned

        if CoreSettings.current().database_url is None:
            database = CoreSettings.current().database
            discard_abandoned(database.parent, glob.escape(database.name))
        prune_on_start()


def _back_up(plan: Sequence[tuple[Any, bool]], **_: Any) -> None:
    if any(not backwards for _, backwards in plan):
        from nexus.maintenance.upgrade_backup import before_migrating

        before_migrating()
