from __future__ import annotations

from core.apps import NexusAppConfig


class McpBridgeConfig(NexusAppConfig):
    name = "mcp_bridge"

    def check_settings(self) -> None:
        from mcp_bridge.choices import of_setting

        of_setting()
