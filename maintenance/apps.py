from __future__ import annotations

from core.apps import NexusAppConfig


class MaintenanceConfig(NexusAppConfig):
    name = "maintenance"

    def on_start(self) -> None:
        from maintenance.retention import prune_on_start

        prune_on_start()
