from __future__ import annotations

from core.apps import NexusAppConfig


class McpBridgeConfig(NexusAppConfig):
    name = "mcp_bridge"
