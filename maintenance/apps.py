from __future__ import annotations

from collections.abc import Sequence

from core.apps import NexusAppConfig


class MaintenanceConfig(NexusAppConfig):
    name = "maintenance"

    def event_types(self) -> Sequence[str]:
        return ["history.restored", "retention.pruned", "database.reset"]

    def on_start(self) -> None:
        from maintenance.retention import prune_on_start

        prune_on_start()
