"""The MCP server: the registry's operations over any transport of the SDK."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp_types import (
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
from mcp_bridge.calling import Calls
from mcp_bridge.choices import enabling, offered
from mcp_bridge.context import CallerOf, Context, TurnOf, turn_of_request
from mcp_bridge.enabling import Choices
from mcp_bridge.extension import Tasks, install
from mcp_bridge.features import tool, tools
from mcp_bridge.subscriptions import ResourceBus, Subscribers
from nexus.core.operations.registry import TOOLSETS, Choice, default
from nexus.core.version import package_version


def build_server(
    caller_of: CallerOf,
    choice_of: Callable[[Context], Choice] = lambda context: default(),
    turn_of: TurnOf = turn_of_request,
    bus: ResourceBus | None = None,
) -> Server[Any]:
    """Return a server whose requests act as the caller that `caller_of` finds in their context, with the toolsets of
    `enabling.Choices`. Servers of one process share a `bus`."""
    bus = bus or ResourceBus()
    choices = Choices(caller_of, choice_of, bus)
    calls, subscribers = Calls(caller_of, choices, turn_of), Subscribers(caller_of, choices, bus)

    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        chosen = choices.of(ctx)
        more = [tool(enabling(chosen, lambda toolset: None))] if offered(chosen) else []
        return ListToolsResult(tools=[*tools(chosen, bound=caller_of(ctx).agent_id is not None), *more])

    async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        return ListResourcesResult(resources=features.resources(choices.of(ctx)))

    async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=features.templates(choices.of(ctx)))

    async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        return await features.read(choices.of(ctx), str(params.uri), caller_of(ctx))

    async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        return ListPromptsResult(prompts=features.prompts(choices.of(ctx)))

    async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        return features.prompt(choices.of(ctx), params.name, params.arguments)

    server = Server[Any](
        "nexus",
        version=package_version(),
        title="Nexus",
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
    install(server, Tasks(caller_of))
    server.middleware += [partial(calls.at_once, server), partial(_introduce, choices)]
    return server


async def _introduce(choices: Choices, ctx: Context, call_next: CallNext) -> HandlerResult:
    """Answer a client that connects; the answer depends on its choice of toolsets."""
    answer = await call_next(ctx)
    if ctx.method not in ("initialize", "server/discover") or not isinstance(answer, dict):
        return answer
    if ctx.method == "initialize":
        answer["capabilities"].pop("extensions", None)  # all of them are for the current protocol
    if ctx.method == "initialize" and len(TOOLSETS) > 1:
        for name in ("tools", "prompts", "resources"):
            answer["capabilities"][name]["listChanged"] = True
    return {**answer, "instructions": features.instructions(choices.of(ctx))}
