from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from nexus.core.apps import NexusAppConfig

if TYPE_CHECKING:
    from nexus.core.contributions import Action


class McpBridgeConfig(NexusAppConfig):
    name = "mcp_bridge"
    clock_columns = {"mcp_tasks": "updated_at"}

    def ready(self) -> None:
        from coordination import overlong
        from coordination.toolset import COORDINATION
        from mcp_bridge.models import Task

        overlong.register(  # it is stored for a day after its end, and longer if the clock was ahead
            "tasks",
            Task.objects.working,
            "created_at",
            lambda: overlong.AHEAD_SECONDS,
            ends="waits_until",
            later="expires_at",
        )
        COORDINATION.administered_in("mcp_bridge.administration")
        super().ready()

    def check_settings(self) -> None:
        from mcp_bridge.choices import from_setting

        from_setting()

    def workers(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        from django.conf import settings

        from mcp_bridge.relayed import serve

        return (serve,) if settings.NEXUS_RELAYS else ()

    def actions(self) -> Sequence[Action]:
        from mcp_bridge.administration import ACTIONS

        return ACTIONS
