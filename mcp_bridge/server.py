"""The MCP server: the registry's operations over any transport of the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ServerEvent
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    SERVER_INFO_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from coordination.toolset import COORDINATION, arun
from core.operations.caller import Caller
from core.operations.errors import invalid, not_found
from core.operations.replies import failure
from core.operations.runner import check_credential, documented
from core.version import package_version
from core.waiting import AUTHENTICATION, in_thread
from mcp_bridge import resources
from mcp_bridge.subscriptions import Hearing, InboxBus, ListenBus
from mcp_bridge.tools import result, tools, wire

Context = ServerRequestContext[Any, Any]


def build_server(caller_of: Callable[[Context], Caller]) -> Server[Any]:
    """The server whose every request acts as the caller that `caller_of` finds in its context."""
    bus = InboxBus()
    subscribed: dict[tuple[int, str], Callable[[], None]] = {}
    sendings: set[asyncio.Task[None]] = set()  # the loop itself keeps no task alive

    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=tools())

    async def perform(ctx: Context, name: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        operation = COORDINATION.operations.get(name)
        if operation is None or not operation.tool:
            return failure(not_found("tool", name[:200]))
        return await arun(caller_of(ctx), name, arguments)

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        return result(await perform(ctx, params.name, params.arguments))

    async def call_tool_at_once(ctx: Context, call_next: CallNext) -> HandlerResult:
        """A plain call is answered on the wire's terms: the SDK would check it twice and copy the result four times."""
        params = ctx.params or {}
        if ctx.method != "tools/call":
            return await call_next(ctx)
        name, arguments = params.get("name"), params.get("arguments")
        if not (isinstance(name, str) and isinstance(arguments, dict | None)):
            error = invalid("Call a tool by its name, with its arguments as an object.")
            return as_sent(ctx, failure(error))
        plain = params.keys() <= {"name", "arguments", "_meta"} and ("_meta" not in params or ctx.meta is not None)
        if not plain or ctx.session.client_params is None:  # what else there is, and who has not said hello
            return await call_next(ctx)
        return as_sent(ctx, await perform(ctx, name, arguments))

    def as_sent(ctx: Context, envelope: dict[str, Any]) -> dict[str, Any]:
        answer = wire(envelope)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            answer |= {"resultType": "complete", "_meta": {SERVER_INFO_META_KEY: server.server_info_stamp}}
        return answer

    async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        return ListResourcesResult(resources=resources.resources())

    async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=resources.templates())

    async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        return await resources.read(str(params.uri), caller_of(ctx))

    async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        return ListPromptsResult(prompts=resources.prompts())

    async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        return resources.prompt(params.name, params.arguments)

    async def subscribe(ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Handshake-era clients: updates ride the connection, until it closes or they unsubscribe."""
        uri, caller = str(params.uri), caller_of(ctx)
        await _check_inboxes([uri], caller)
        connection = ctx.session._connection  # the SDK offers no public way to a connection's end
        key = (id(connection), uri)
        if key in subscribed:
            return EmptyResult()
        await _started(bus)

        def notify(event: ServerEvent) -> None:
            sending = asyncio.create_task(ctx.session.send_resource_updated(uri))
            sendings.add(sending)
            sending.add_done_callback(sendings.discard)

        def forget() -> None:
            if subscribed.pop(key, None):
                stop()

        stop = bus.hear(Hearing(caller, frozenset({uri}), notify, forget))
        subscribed[key] = forget
        connection.exit_stack.callback(forget)
        return EmptyResult()

    async def unsubscribe(ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        forget = subscribed.get((id(ctx.session._connection), str(params.uri)))
        if forget is not None:
            forget()
        return EmptyResult()

    async def listen_to(ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Clients of the current protocol: updates ride the response of this request."""
        caller, uris = caller_of(ctx), [str(uri) for uri in params.notifications.resource_subscriptions or ()]
        await _check_inboxes(uris, caller)
        await _started(bus)
        return await ListenBus(bus, caller, uris).listen(ctx, params)

    server = Server[Any](
        "nexus",
        version=package_version(),
        title="Nexus",
        instructions=resources.text("instructions"),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=listen_to,
    )
    server.middleware.append(call_tool_at_once)
    return server


async def _check_inboxes(uris: Iterable[str], caller: Caller) -> None:
    """Raises an MCP error for what is no inbox, for another agent's, and for a caller whose key is good no more."""
    for uri in uris:
        agent_id = resources.agent_of_inbox(uri)
        if agent_id is None:
            raise MCPError(INVALID_PARAMS, "Only nexus://inbox/{agent_id} can be subscribed to.", {"uri": uri[:200]})
        if caller.agent_id is not None and caller.agent_id != agent_id:
            raise MCPError(INVALID_PARAMS, f"This connection may follow the inbox of {caller.agent_id!r} only.")
    try:
        await in_thread(AUTHENTICATION, partial(check_credential, caller))
    except Exception as error:
        raise _as_mcp(error) from None


async def _started(bus: InboxBus) -> None:
    """Begin to watch. Raises an MCP error that carries the documented one, where the store cannot be watched."""
    try:
        await bus.start()
    except Exception as error:
        raise _as_mcp(error) from None


def _as_mcp(error: Exception) -> MCPError:
    known = documented(error)
    return MCPError(INTERNAL_ERROR, known.message, {"code": known.code.value, **known.details})
