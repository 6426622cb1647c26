"""The yardstick: an MCP server of the same SDK, over its own stdio or HTTP, with one tool that does nothing."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
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


def build() -> Server[Any]:
    return Server("noop", on_list_tools=list_tools, on_call_tool=call_tool)


def application() -> Any:
    """The same over streamable HTTP, for an ASGI server."""
    return build().streamable_http_app(json_response=True)


async def main() -> None:
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve(port: int) -> None:
    """Serve it by the hub's own server, until SIGTERM."""
    from nexus_site.serving.daphne import HubServer  # which installs a reactor

    listening = socket.create_server(("127.0.0.1", port))
    listening.setblocking(False)
    HubServer(application(), [listening], lambda: None).run()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        serve(int(sys.argv[1]))
    else:
        asyncio.run(main())
