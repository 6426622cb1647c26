from __future__ import annotations

from nexus.core.apps import NexusAppConfig


class CompatConfig(NexusAppConfig):
    name = "nexus.compat"
    clock_columns = {"imported_stores": "imported_at"}

    def ready(self) -> None:
        from nexus.compat import ids
        from nexus.core.operations.runner import ForeignIds, foreign_ids

        foreign_ids.append(ForeignIds(ids.in_call, ids.ours, ids.replaced))
        super().ready()
