"""An MCP client on the server, in one process: the transports have tests of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from mcp.client.client import Client

from core.operations.caller import Caller
from mcp_bridge.server import build_server

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def connect(committed: None) -> Connect:
    """Connect a client; bound to an agent when one is named."""

    def client(agent_id: str | None = None, mode: str = "auto") -> Client:
        caller = Caller(transport="memory", agent_id=agent_id)
        return Client(build_server(lambda context: caller), mode=mode)

    return client
