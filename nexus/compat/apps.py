from __future__ import annotations

from nexus.core.apps import NexusAppConfig


class CompatConfig(NexusAppConfig):
    name = "nexus.compat"
    clock_columns = {"imported_stores": "imported_at"}

    def ready(self) -> None:
        from nexus.compat.okto import calls
        from nexus.core.operations.runner import Translator, translators

        translators.append(Translator(calls.concerns, calls.translate))
        super().ready()
