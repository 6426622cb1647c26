from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nexus.core.apps import NexusAppConfig
from nexus.core.operations.caller import Caller


class CompatConfig(NexusAppConfig):
    name = "nexus.compat"
    declared_in = ("okto.health", "okto.operations")
    clock_columns = {"imported_stores": "imported_at"}

    def ready(self) -> None:
        from coordination.toolset import COORDINATION
        from nexus.compat.nexus3 import wire
        from nexus.compat.okto import answers, calls
        from nexus.control.toolset import CONTROL
        from nexus.core.operations.registry import Translator

        COORDINATION.translators.append(Translator(calls.concerns, calls.translate, answers.less))
        CONTROL.translators.append(Translator(wire.concerns, wire.translate, wire.answer))
        COORDINATION.administered_in("nexus.compat.okto.administration")
        super().ready()

    def routes(self) -> Sequence[Any]:
        from nexus.compat.okto.rest import routes

        return routes

    def mcp_servers(self) -> Mapping[str, Callable[[Caller], Any]]:
        def nexus_core(caller: Caller) -> Any:
            from nexus.compat.nexus_core.server import build_server

            return build_server(caller)

        return {"nexus-core": nexus_core}
