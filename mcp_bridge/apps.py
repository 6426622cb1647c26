from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from nexus.core.apps import NexusAppConfig


class McpBridgeConfig(NexusAppConfig):
    name = "mcp_bridge"

    def check_settings(self) -> None:
        from mcp_bridge.choices import from_setting

        from_setting()

    def background_tasks(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        from django.conf import settings

        from mcp_bridge.relay_server import serve

        return (serve,) if settings.NEXUS_RELAYS else ()
