"""MCP over streamable HTTP: `/mcp`, for the current protocol and for the older handshake (contract: Running It)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from core.access import Approach, Refused, aidentify
from core.operations.caller import Caller
from core.operations.replies import failure
from mcp_bridge.server import Context, build_server

CALLER = "nexus.caller"


class Endpoint:
    """The ASGI application of `/mcp`. Its sessions live in one task, begun by `start` or by the first request."""

    def __init__(self) -> None:
        self._sessions: asyncio.Task[None] | None = None
        self._manager: StreamableHTTPSessionManager | None = None
        self._started = asyncio.Lock()

    async def start(self) -> None:
        """Begin to serve; a second call changes nothing."""
        async with self._started:
            if self._sessions is not None:
                return
            server = build_server(_caller)
            server.get_tool_input_schema = lambda name: None  # no tool has header parameters; else each call lists all
            # One JSON body per call: a call has no notifications of its own, and subscriptions keep their stream.
            manager = StreamableHTTPSessionManager(server, json_response=True)
            ready = asyncio.get_running_loop().create_future()
            self._sessions = asyncio.create_task(_hold(manager, ready))
            await ready
            self._manager = manager

    async def stop(self) -> None:
        """End every session."""
        if self._sessions is not None:
            self._sessions.cancel()
            await asyncio.wait([self._sessions])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = await aidentify(Approach.of_scope(scope), transport="http", key_required=True)
        except Refused as refusal:
            headers = {"www-authenticate": "Bearer"} if refusal.status == 401 else None
            body = json.dumps(failure(refusal))
            await Response(body, refusal.status, headers, "application/json")(scope, receive, send)
            return
        await self.start()
        assert self._manager is not None and caller.agent_id is not None
        # The SDK holds a session to the agent that opened it; the key itself goes no further.
        token = AccessToken(token="", client_id=caller.agent_id, scopes=[])
        await self._manager.handle_request({**scope, "user": AuthenticatedUser(token), CALLER: caller}, receive, send)


async def _hold(manager: StreamableHTTPSessionManager, ready: asyncio.Future[None]) -> None:
    async with manager.run():
        ready.set_result(None)
        await asyncio.Event().wait()


def _caller(context: Context) -> Caller:
    caller: Any = context.request.scope[CALLER] if context.request else None
    if not isinstance(caller, Caller):
        raise RuntimeError("a request reached /mcp without its caller")
    return caller
