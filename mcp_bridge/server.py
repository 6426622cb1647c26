"""The MCP server: the registry's operations over any transport of the SDK, from a request to the operation and back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged
from mcp_types import (
    SERVER_INFO_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
)

from mcp_bridge import features
from mcp_bridge.choices import ENABLE, Enable, enabling, offered
from mcp_bridge.context import CallerOf, Context, SlotOf, end_of_connection, is_modern, slot_of_request
from mcp_bridge.features import result, tool, tools, wire
from mcp_bridge.presence import acted
from mcp_bridge.subscriptions import Pushes, ResourceBus, Subscribers
from nexus.core.cancellation import while_there
from nexus.core.config import package_version
from nexus.core.fairness import holding
from nexus.core.operations.dispatch import aperform, check_credential, documented
from nexus.core.operations.errors import NexusError, invalid, not_found
from nexus.core.operations.registry import TOOLSETS, Choice, Toolset, add, default, find_tool
from nexus.core.operations.replies import Outcome, Reply
from nexus.core.operations.validation import validated
from nexus.core.waiting import AUTHENTICATION, on_loop_or_thread


class Choices:
    """The toolsets of each connection.

    A connection begins with the choice that `choice_of` finds in its requests. What `toolset_enable` adds stays as long
    as the `connection` of its caller lasts.
    """

    def __init__(self, caller_of: CallerOf, choice_of: Callable[[Context], Choice], bus: ResourceBus) -> None:
        self._caller_of, self._choice_of, self._bus = caller_of, choice_of, bus
        self._added: dict[str | None, Choice] = {}  # by connection

    def of(self, ctx: Context) -> Choice:
        """Return the current choice of a request's connection."""
        chosen = self._choice_of(ctx)
        for toolset in self._added.get(self._caller_of(ctx).connection, ()) if self._added else ():
            with contextlib.suppress(NexusError):  # enabled with another choice, and clashes with this one
                chosen = add(chosen, toolset)
        return chosen

    async def enable(self, ctx: Context, arguments: dict[str, Any] | None) -> Outcome:
        """Return the outcome of a call of `toolset_enable`."""
        chosen, caller = self.of(ctx), self._caller_of(ctx)
        new: list[Toolset] = []
        operation = enabling(chosen, new.append)
        try:
            params = cast(Enable, validated(operation, arguments))
            await on_loop_or_thread(AUTHENTICATION, partial(check_credential, caller))
            data = operation.call(params, caller)
        except Exception as error:
            return Outcome(error=documented(error))
        for toolset in new:
            if toolset not in chosen:
                self._added[caller.connection] = (*self._added.get(caller.connection, ()), toolset)
                if not is_modern(ctx):
                    end_of_connection(ctx).callback(self._added.pop, caller.connection, None)
                await self._notify(ctx, caller.connection, toolset)
        return Outcome(data)

    async def _notify(self, ctx: Context, connection: str | None, toolset: Toolset) -> None:
        """Send the notice that the lists have grown: to the session, or else to the listeners of this connection."""
        changes: list[tuple[Any, ServerEvent, Callable[[], Awaitable[None]]]] = [
            (toolset.tools, ToolsListChanged(), ctx.session.send_tool_list_changed),
            (toolset.prompts, PromptsListChanged(), ctx.session.send_prompt_list_changed),
            (toolset.references, ResourcesListChanged(), ctx.session.send_resource_list_changed),
        ]
        for any_of, event, send in changes:
            if any_of and is_modern(ctx):
                self._bus.notify(connection, event)
            elif any_of:
                await send()


class Calls:
    """The two paths of a call through the SDK."""

    def __init__(self, caller_of: CallerOf, choices: Choices, slot_of: SlotOf) -> None:
        self._caller_of, self._choices, self._slot_of = caller_of, choices, slot_of

    async def call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        """Answer a call that the SDK has parsed."""
        return result(*await self._perform(ctx, params.name, params.arguments))

    async def at_once(self, server: Server[Any], ctx: Context, call_next: CallNext) -> HandlerResult:
        """Answer a plain call directly in wire form: the SDK would validate it twice and copy the result four times."""
        params = ctx.params or {}
        if ctx.method != "tools/call":
            return await call_next(ctx)
        name, arguments = params.get("name"), params.get("arguments")
        if not (isinstance(name, str) and isinstance(arguments, dict | None)):
            error = invalid("Call a tool by its name, with its arguments as an object.")
            return _as_sent(server, ctx, self._choices.of(ctx)[0].reply, Outcome(error=error))
        plain = params.keys() <= {"name", "arguments", "_meta"} and ("_meta" not in params or ctx.meta is not None)
        said_hello = is_modern(ctx) or ctx.session.client_params is not None
        if not plain or not said_hello:
            return await call_next(ctx)
        return _as_sent(server, ctx, *await self._perform(ctx, name, arguments))

    async def _perform(self, ctx: Context, name: str, arguments: dict[str, Any] | None) -> tuple[Reply, Outcome]:
        try:
            slot = self._slot_of(ctx)
        except NexusError as error:
            return self._choices.of(ctx)[0].reply, Outcome(error=error)
        async with holding(slot):
            return await self._performed(ctx, name, arguments)

    async def _performed(self, ctx: Context, name: str, arguments: dict[str, Any] | None) -> tuple[Reply, Outcome]:
        chosen = self._choices.of(ctx)
        operation = find_tool(chosen, name)
        if operation is not None:
            toolset, caller = operation.toolset, self._caller_of(ctx)
            performing = aperform(toolset, caller, name, arguments)
            if operation.wait is not None:
                performing = with_progress(ctx, name, _while_connected(ctx.request, performing))
            outcome = await performing
            if outcome.data is not None:
                acted(caller.connection, operation, arguments, outcome.data)
            return toolset.reply, outcome
        if name == ENABLE and len(TOOLSETS) > 1:
            return chosen[0].reply, await self._choices.enable(ctx, arguments)
        return chosen[0].reply, Outcome(error=not_found("tool", name[:200]))


def _as_sent(server: Server[Any], ctx: Context, reply: Reply, done: Outcome) -> dict[str, Any]:
    answer = wire(reply, done)
    if is_modern(ctx):
        answer["resultType"] = "complete"
        answer["_meta"] = {SERVER_INFO_META_KEY: server.server_info_stamp}
    return answer


async def _while_connected(request: Any, performing: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Return the outcome of a waiting call, cancelled when its HTTP client hangs up: the SDK itself would go on
    waiting."""
    if request is None:
        return await performing
    outcome = await while_there(request.receive, performing)
    return outcome or Outcome(error=invalid("The client hung up."))  # which nobody reads


FIRST_SECONDS, MOST_SECONDS = 1.0, 15.0  # between two notices: clients give up after 60 s of silence, some earlier


async def with_progress(ctx: Context, name: str, performing: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Return the outcome of a waiting call. Until then, send progress notices with the seconds so far, if the request
    has a token for them."""
    token = (ctx.meta or {}).get("progress_token")
    if token is None:
        return await performing
    call, started, pace = asyncio.ensure_future(performing), time.monotonic(), FIRST_SECONDS
    try:
        while not (await asyncio.wait({call}, timeout=pace))[0]:
            seconds, message = round(time.monotonic() - started, 3), f"{name} waits."
            if is_modern(ctx):
                await ctx.session.report_progress(seconds, message=message)
            else:  # on the session's own stream: over HTTP the answer is one JSON body
                await ctx.session.send_progress_notification(token, seconds, message=message)
            pace = min(2 * pace, MOST_SECONDS)
        return call.result()
    finally:
        call.cancel()


def build_server(
    caller_of: CallerOf,
    choice_of: Callable[[Context], Choice] = lambda context: default(),
    slot_of: SlotOf = slot_of_request,
    bus: ResourceBus | None = None,
) -> Server[Any]:
    """Return a server whose requests act as the caller that `caller_of` finds in their context, with the toolsets of
    `Choices`. Servers of one process share a `bus`."""
    bus = bus or ResourceBus()
    choices = Choices(caller_of, choice_of, bus)
    calls = Calls(caller_of, choices, slot_of)
    subscribers = Subscribers(caller_of, choices, bus, Pushes(choices))

    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        chosen = choices.of(ctx)
        more = [tool(enabling(chosen, lambda toolset: None))] if offered(chosen) else []
        caller = caller_of(ctx)
        bound = (caller.agent_id or caller.named) is not None
        return ListToolsResult(tools=[*tools(chosen, bound=bound), *more])

    async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        return ListResourcesResult(resources=features.resources(choices.of(ctx)))

    async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=features.templates(choices.of(ctx)))

    async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        return await features.read_resource(choices.of(ctx), str(params.uri), caller_of(ctx))

    async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        return ListPromptsResult(prompts=features.prompts(choices.of(ctx)))

    async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        return features.prompt(choices.of(ctx), params.name, params.arguments)

    server = Server[Any](
        "nexus",
        version=package_version(),
        title="Nexus",
        lifespan=_connection,
        get_tool_input_schema=lambda name: None,  # no tool has header parameters; else each call would list all tools
        on_list_tools=list_tools,
        on_call_tool=calls.call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_subscribe_resource=subscribers.subscribe,
        on_unsubscribe_resource=subscribers.unsubscribe,
        on_subscriptions_listen=subscribers.listen,
    )
    server.middleware += [partial(calls.at_once, server), partial(_introduce, choices)]
    return server


@contextlib.asynccontextmanager
async def _connection(server: Server[Any]) -> AsyncIterator[contextlib.ExitStack]:
    """Yield what is to be done when the one connection of a server is over; over HTTP that is up to its sessions."""
    with contextlib.ExitStack() as ends:
        yield ends


async def _introduce(choices: Choices, ctx: Context, call_next: CallNext) -> HandlerResult:
    """Answer a client that connects; the answer depends on its choice of toolsets."""
    answer = await call_next(ctx)
    if ctx.method not in ("initialize", "server/discover") or not isinstance(answer, dict):
        return answer
    if ctx.method == "initialize" and len(TOOLSETS) > 1:
        for name in ("tools", "prompts", "resources"):
            answer["capabilities"][name]["listChanged"] = True
    return {**answer, "instructions": features.instructions(choices.of(ctx))}
