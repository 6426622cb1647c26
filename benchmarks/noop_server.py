"""The yardstick: an MCP server of the same SDK over HTTP, with one tool that does nothing."""

from __future__ import annotations

import socket
import sys
from typing import Any

from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)


async def list_tools(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="noop", input_schema={"type": "object"})])


async def call_tool(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="{}")], structured_content={})


def serve(port: int) -> None:
    """Serve it by the hub's own server, until SIGTERM."""
    from nexus_site.serving.daphne import HubServer  # which installs a reactor

    server: Server[Any] = Server("noop", on_list_tools=list_tools, on_call_tool=call_tool)
    listening = socket.create_server(("127.0.0.1", port))
    listening.setblocking(False)
    HubServer(server.streamable_http_app(json_response=True), [listening], lambda: None).run()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
