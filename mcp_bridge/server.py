"""The MCP server: the registry's operations over any transport of the SDK."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import (
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

from core.leaving import while_there
from core.operations.caller import Caller
from core.operations.deferred import NotKept
from core.operations.errors import NexusError, invalid, not_found
from core.operations.registry import TOOLSETS, Toolset
from core.operations.replies import Outcome, Reply
from core.operations.runner import aperform, check_credential, documented
from core.operations.toolsets import Choice, add, default, find_tool
from core.operations.validation import validated
from core.version import package_version
from core.waiting import AUTHENTICATION, in_thread
from mcp_bridge import reading, tasks
from mcp_bridge.choices import ENABLE, Enable, enabling, offered
from mcp_bridge.errors import as_mcp
from mcp_bridge.extension import Tasks, created, declared, install
from mcp_bridge.following import listened
from mcp_bridge.models import Task
from mcp_bridge.progress import told
from mcp_bridge.subscriptions import Hearing, ListenBus, ResourceBus
from mcp_bridge.tools import result, tool, tools, wire

Context = ServerRequestContext[Any, Any]


def build_server(
    caller_of: Callable[[Context], Caller], choice_of: Callable[[Context], Choice] = lambda context: default()
) -> Server[Any]:
    """The server whose every request acts as the caller that `caller_of` finds in its context.

    A connection begins with the toolsets that `choice_of` finds in the first request of a session, or in each request
    where there are no sessions; `toolset_enable` adds to them for as long as the `connection` of its caller lasts.
    """
    bus = ResourceBus()
    added: dict[str | None, Choice] = {}  # by connection, what it enabled
    subscribed: dict[tuple[int, str], Callable[[], None]] = {}
    sendings: set[asyncio.Task[None]] = set()  # the loop itself keeps no task alive

    def choice(ctx: Context) -> Choice:
        state = ctx.session._connection.state  # no public way leads there; without sessions it is new each time
        if "choice" not in state:
            state["choice"] = choice_of(ctx)
        chosen: Choice = state["choice"]
        for toolset in added.get(caller_of(ctx).connection, ()) if added else ():
            with contextlib.suppress(NexusError):  # enabled beside another choice, and clashes with this one
                chosen = add(chosen, toolset)
        return chosen

    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        chosen = choice(ctx)
        more = [tool(enabling(chosen, lambda toolset: None))] if offered(chosen) else []
        return ListToolsResult(tools=[*tools(chosen), *more])

    async def perform(ctx: Context, name: str, arguments: dict[str, Any] | None) -> tuple[Reply, Outcome | Task]:
        chosen = choice(ctx)
        operation = find_tool(chosen, name)
        if operation is not None:
            toolset = operation.toolset
            if operation.wait is not None and operation.wait.deferrable and declared(ctx):
                with contextlib.suppress(NotKept):  # the call is made as if nothing had been declared
                    return toolset.reply, await tasks.begin(operation, caller_of(ctx), arguments)
            performing = aperform(toolset, caller_of(ctx), name, arguments)
            if operation.wait is not None:
                performing = told(ctx, name, _while_connected(ctx.request, performing))
            return toolset.reply, await performing
        if name == ENABLE and len(TOOLSETS) > 1:
            return chosen[0].reply, await enable(ctx, chosen, arguments)
        return chosen[0].reply, Outcome(error=not_found("tool", name[:200]))

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        reply, done = await perform(ctx, params.name, params.arguments)
        return result(reply, done) if isinstance(done, Outcome) else cast(CallToolResult, created(done))

    async def call_tool_at_once(ctx: Context, call_next: CallNext) -> HandlerResult:
        """A plain call is answered on the wire's terms: the SDK would check it twice and copy the result four times."""
        params = ctx.params or {}
        if ctx.method != "tools/call":
            return await call_next(ctx)
        name, arguments = params.get("name"), params.get("arguments")
        if not (isinstance(name, str) and isinstance(arguments, dict | None)):
            error = invalid("Call a tool by its name, with its arguments as an object.")
            return as_sent(ctx, choice(ctx)[0].reply, Outcome(error=error))
        plain = params.keys() <= {"name", "arguments", "_meta"} and ("_meta" not in params or ctx.meta is not None)
        if not plain or ctx.session.client_params is None:  # what else there is, and who has not said hello
            return await call_next(ctx)
        return as_sent(ctx, *await perform(ctx, name, arguments))

    def as_sent(ctx: Context, reply: Reply, done: Outcome | Task) -> dict[str, Any]:
        answer = wire(reply, done) if isinstance(done, Outcome) else created(done)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            answer.setdefault("resultType", "complete")
            answer["_meta"] = {SERVER_INFO_META_KEY: server.server_info_stamp}
        return answer

    async def enable(ctx: Context, chosen: Choice, arguments: dict[str, Any] | None) -> Outcome:
        caller = caller_of(ctx)
        connection = caller.connection
        new: list[Toolset] = []
        operation = enabling(chosen, new.append)
        try:
            params = cast(Enable, validated(operation, arguments))
            await in_thread(AUTHENTICATION, partial(check_credential, caller))
            data = operation.call(params, caller)
        except Exception as error:
            return Outcome(error=documented(error))
        for toolset in new:
            if toolset not in chosen:
                added[connection] = (*added.get(connection, ()), toolset)
                if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                    ctx.session._connection.exit_stack.callback(added.pop, connection, None)
                await tell(ctx, connection, toolset)
        return Outcome(data)

    async def tell(ctx: Context, connection: str | None, toolset: Toolset) -> None:
        """That the lists are longer now: to a session by itself, else to those who listen for this connection."""
        changes: list[tuple[Any, ServerEvent, Callable[[], Awaitable[None]]]] = [
            (toolset.tools, ToolsListChanged(), ctx.session.send_tool_list_changed),
            (toolset.prompts, PromptsListChanged(), ctx.session.send_prompt_list_changed),
            (toolset.references, ResourcesListChanged(), ctx.session.send_resource_list_changed),
        ]
        for any_of, event, send in changes:
            if any_of and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                bus.tell(connection, event)
            elif any_of:
                await send()

    async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        return ListResourcesResult(resources=reading.resources(choice(ctx)))

    async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=reading.templates(choice(ctx)))

    async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        return await reading.read(choice(ctx), str(params.uri), caller_of(ctx))

    async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        return ListPromptsResult(prompts=reading.prompts(choice(ctx)))

    async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        return reading.prompt(choice(ctx), params.name, params.arguments)

    async def subscribe(ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Handshake-era clients: updates ride the connection, until it closes or they unsubscribe."""
        uri, caller = str(params.uri), caller_of(ctx)
        await _check_own(choice(ctx), [uri], caller)
        connection = ctx.session._connection
        key = (id(connection), uri)
        if key in subscribed:
            return EmptyResult()
        await _started(bus)

        def notify(event: ServerEvent) -> None:
            if isinstance(event, ResourceUpdated):
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
        await _check_own(choice(ctx), uris, caller)
        await _started(bus)
        return await listened(ctx, params, caller, ListenBus(bus, caller, uris).listen)

    async def introduce(ctx: Context, call_next: CallNext) -> HandlerResult:
        """What a client is told when it connects, which follows its choice."""
        answer = await call_next(ctx)
        if ctx.method not in ("initialize", "server/discover") or not isinstance(answer, dict):
            return answer
        if ctx.method == "initialize":
            answer["capabilities"].pop("extensions", None)  # of the current protocol, all of them
        if ctx.method == "initialize" and len(TOOLSETS) > 1:
            for name in ("tools", "prompts", "resources"):
                answer["capabilities"][name]["listChanged"] = True
        return {**answer, "instructions": reading.instructions(choice(ctx))}

    server = Server[Any](
        "nexus",
        version=package_version(),
        title="Nexus",
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
    install(server, Tasks(caller_of))
    server.middleware += [call_tool_at_once, introduce]
    return server


async def _while_connected(request: Any, performing: Coroutine[Any, Any, Outcome]) -> Outcome:
    """The outcome of a call that waits, given up when its HTTP client hangs up: the SDK itself would wait on."""
    if request is None:
        return await performing
    left = Outcome(error=invalid("The client hung up."))  # which nobody reads
    return await while_there(request.receive, performing) or left


async def _check_own(choice: Choice, uris: Iterable[str], caller: Caller) -> None:
    """Raises an MCP error for what is no agent's resource, for another agent's, and for a key that is good no more."""
    for uri in uris:
        own = reading.agent_of(choice, uri)
        if own is None:
            those = ", ".join(template.uri_template for template in reading.templates(choice)) or "nothing"
            raise MCPError(INVALID_PARAMS, f"This cannot be subscribed to; what can: {those}.", {"uri": uri[:200]})
        resource, agent_id = own
        if caller.agent_id is not None and caller.agent_id != agent_id:
            raise MCPError(
                INVALID_PARAMS, f"This connection may follow the {resource.name} of {caller.agent_id!r} only."
            )
    try:
        await in_thread(AUTHENTICATION, partial(check_credential, caller))
    except Exception as error:
        raise as_mcp(error) from None


async def _started(bus: ResourceBus) -> None:
    """Begin to watch. Raises an MCP error that carries the documented one, where the store cannot be watched."""
    try:
        await bus.start()
    except Exception as error:
        raise as_mcp(error) from None
