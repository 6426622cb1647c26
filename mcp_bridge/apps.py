from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nexus.core.apps import NexusAppConfig

if TYPE_CHECKING:
    from nexus.core.contributions import Action, ImpossibleState, RetentionLane


class McpBridgeConfig(NexusAppConfig):
    name = "mcp_bridge"

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

    def retention_lanes(self) -> Sequence[RetentionLane]:
        from mcp_bridge.maintenance import LANES

        return LANES

    def impossible_states(self) -> Sequence[ImpossibleState]:
        from mcp_bridge.maintenance import IMPOSSIBLE

        return IMPOSSIBLE

    def clock_columns(self) -> Mapping[str, str]:
        return {"mcp_tasks": "updated_at"}

    def metrics(self) -> Iterable[Any]:
        from mcp_bridge.metrics import collect

        return collect()

    def actions(self) -> Sequence[Action]:
        from mcp_bridge.administration import ACTIONS

        return ACTIONS
