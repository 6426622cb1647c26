"""An MCP client on the server, in one process: the transports have tests of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.extension import ClientExtension

from coordination.toolset import run
from mcp_bridge.server import build_server
from nexus.core.operations import registry
from nexus.core.operations.caller import Caller, of_its_own

Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def connect(committed: None) -> Connect:
    """Connect a client; bound to an agent when one is named, with the toolsets that are chosen."""

    def client(
        agent_id: str | None = None,
        mode: str = "auto",
        chosen: Sequence[str] = (),
        extensions: Sequence[ClientExtension] = (),
    ) -> Client:
        caller = Caller(transport="memory", agent_id=agent_id, connection=of_its_own("memory"))
        choice = registry.choose(chosen) if chosen else registry.default()
        return Client(build_server(lambda context: caller, lambda context: choice), mode=mode, extensions=extensions)

    return client


@pytest.fixture
def operate() -> Callable[..., Any]:
    """Call an operation as an operator: its data, or with `fails` its error."""

    def call(name: str, *, fails: bool = False, **arguments: Any) -> Any:
        envelope = run(Caller(transport="memory", operator="olga"), name, arguments)
        assert envelope["ok"] is not fails, envelope
        return envelope["error"] if fails else envelope["data"]

    return call
