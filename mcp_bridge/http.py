"""MCP over streamable HTTP: `/mcp`, for the current protocol and for the older handshake.

`/mcp/{toolset}` and `/mcp?toolsets=a,b` choose toolsets; other URLs get the choice of the key's agent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from mcp_bridge import choices
from mcp_bridge.config import names
from mcp_bridge.context import SESSION, Context
from mcp_bridge.presence import PRESENCE, connected
from mcp_bridge.server import build_server
from mcp_bridge.sessions import ID, Session, Sessions
from nexus.core.access import ConnectionInfo, identify
from nexus.core.background_work import work_forever
from nexus.core.operations import registry
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, invalid
from nexus.core.operations.registry import Choice
from nexus.core.rest.errors import explain
from nexus.core.waiting import AUTHENTICATION, on_loop_or_thread

FIRST_PING_SECONDS = 1
CALLER, CHOICE = "nexus.caller", "nexus.choice"
VERSION = "mcp-protocol-version"
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Nexus: MCP</title>
<body style="font: 16px/1.5 system-ui; max-width: 40em; margin: 4em auto; padding: 0 1em">
<h1>This is where agents connect</h1>
<p>The address is for coding clients that speak MCP over HTTP; each sends the API key of its agent. Make an agent on the
<a href="/admin/">dashboard</a>, or with <code>nexus agents create</code>: it shows the key once.</p>
<p>Then write the address into your client: <code>nexus connect --client claude-code --url …/mcp</code>.</p>
<p>Programs that speak no MCP use <a href="/api/v1/docs">REST</a>.</p>
"""  # for a person who opens the address in a browser


class McpEndpoint:
    """The ASGI application of `/mcp`. Its sessions live in one task, from `start` to `stop`."""

    _serving: asyncio.Task[None]
    _sessions: Sessions
    _streaming: StreamableHTTPSessionManager

    async def start(self) -> None:
        """Begin to serve."""
        server = build_server(_caller, _choice)
        # One JSON body per call: only waiting calls have notifications of their own, and subscriptions
        # have their own stream.
        manager = StreamableHTTPSessionManager(server, json_response=True)
        self._sessions, self._streaming = Sessions(manager), StreamableHTTPSessionManager(server)
        ready = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(_hold(manager, self._streaming, ready))
        await ready

    async def stop(self) -> None:
        """End every session."""
        self._serving.cancel()
        await asyncio.wait([self._serving])
        self._sessions.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            who = partial(identify, ConnectionInfo.of_scope(scope), transport="http", key_required=True)
            caller = await on_loop_or_thread(AUTHENTICATION, who)
            agent_id = caller.agent_id
            assert agent_id is not None
            named = _choice_of(scope)
            # The SDK binds a session to its agent and to the choice in its URL; the key is not passed on.
            subject = ",".join(toolset.name for toolset in named) if named else None
            user = AuthenticatedUser(AccessToken(token="", client_id=agent_id, scopes=[], subject=subject))
            is_modern = headers.get(VERSION) in MODERN_PROTOCOL_VERSIONS  # and has no sessions
            session = None if is_modern else self._sessions.find(agent_id, headers.get(ID, ""), user)
            if session is not None:
                caller, choice = replace(caller, connection=f"mcp:{headers[ID]}"), session.choice
            else:
                choose = partial(choices.from_agent, agent_id)
                choice = await on_loop_or_thread(AUTHENTICATION, choose) if named is None else named
        except Exception as error:
            body, status = explain(error)
            if status == 401 and _is_browser(scope):
                page = PAGE.replace('href="', f'href="{scope.get("root_path", "")}')
                await Response(page, media_type="text/html")(scope, receive, send)
                return
            more = {"www-authenticate": "Bearer"} if status == 401 else None
            await Response(json.dumps(body), status, more, "application/json")(scope, receive, send)
            return
        scope = {**scope, "user": user, CALLER: caller, CHOICE: choice, SESSION: session}
        with connected(caller.connection, agent_id):
            streams = is_modern or scope["method"] == "GET"
            async with _begun_at_once(send) if streams else nullcontext(send) as beginning:
                if _may_stream(headers, choice):
                    await self._streaming.handle_request(scope, receive, beginning)
                else:
                    used = session or Session(user, choice)
                    await self._sessions.serve(agent_id, used, scope, receive, beginning, is_new=session is None)


@asynccontextmanager
async def _begun_at_once(send: Send) -> AsyncIterator[Send]:
    """Return `send` that begins a stream with a comment: a server sends the head of an answer with the first of its
    body, so a client that waits for the head would wait for the first event. The stream's first ping follows soon;
    the SDK's own come every 15 seconds, which is long for a client that wants to know that the stream is open."""
    pinging: asyncio.Task[None] | None = None

    async def ping() -> None:
        await asyncio.sleep(FIRST_PING_SECONDS)
        await send({"type": "http.response.body", "body": b": ping\n\n", "more_body": True})

    async def sending(message: Message) -> None:
        nonlocal pinging
        if pinging is not None and not message.get("more_body", False):
            pinging.cancel()  # nothing may follow the end
        await send(message)
        if message["type"] == "http.response.start":
            kind = Headers(raw=message["headers"]).get("content-type", "")
            if kind.startswith("text/event-stream"):
                await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
                pinging = asyncio.create_task(ping())

    try:
        yield sending
    finally:
        if pinging is not None:
            pinging.cancel()
            await asyncio.wait([pinging])


def _is_browser(scope: Scope) -> bool:
    """Return whether a person opened the address. MCP's own clients ask for JSON or an event stream."""
    return scope["method"] in ("GET", "HEAD") and "text/html" in Headers(scope=scope).get("accept", "")


def _may_stream(headers: Headers, choice: Choice) -> bool:
    """Return whether a request of the current protocol calls a waiting operation, and its client accepts notices of
    that."""
    if headers.get(VERSION) not in MODERN_PROTOCOL_VERSIONS or headers.get("mcp-method") != "tools/call":
        return False
    operation = registry.find_tool(choice, headers.get("mcp-name", ""))
    return operation is not None and operation.wait is not None and "text/event-stream" in headers.get("accept", "")


async def _hold(
    manager: StreamableHTTPSessionManager, streaming: StreamableHTTPSessionManager, ready: asyncio.Future[None]
) -> None:
    async with manager.run(), streaming.run():
        ready.set_result(None)
        await work_forever(PRESENCE)


def _caller(context: Context) -> Caller:
    caller: Any = context.request.scope[CALLER] if context.request else None
    if not isinstance(caller, Caller):
        raise RuntimeError("a request reached /mcp without its caller")
    return caller


def _choice(context: Context) -> Choice:
    request: Any = context.request
    choice: Choice = request.scope[CHOICE]
    return choice


def _choice_of(scope: Scope) -> Choice | None:
    """Return the choice of a URL, if it makes one.

    Raises NOT_FOUND for a path without a toolset of its name, VALIDATION_ERROR for a query with unknown ones,
    CONFIG_ERROR for toolsets that clash.
    """
    path = scope["path"].removeprefix("/mcp").strip("/")
    queries = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True).get("toolsets", [])
    if path and queries:
        raise invalid("Choose toolsets by the path or by ?toolsets=, not by both.", field="toolsets")
    if path:
        return registry.choose([path], unknown=Code.NOT_FOUND)
    if not queries:
        return None
    try:
        chosen = names(",".join(queries))
    except ValueError as error:
        raise invalid(f"toolsets: {error}.", field="toolsets") from None
    return registry.choose(chosen, unknown=Code.VALIDATION_ERROR)
