"""Requests that subscribe to an agent's own resources, in both eras of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial

from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from mcp_bridge import reading
from mcp_bridge.context import CallerOf, Context
from mcp_bridge.enabling import Choices
from mcp_bridge.errors import as_mcp
from mcp_bridge.following import listened
from mcp_bridge.subscriptions import Hearing, ListenBus, ResourceBus
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Choice
from nexus.core.operations.runner import check_credential
from nexus.core.waiting import AUTHENTICATION, at_hand


class Subscribers:
    """The subscribed connections."""

    def __init__(self, caller_of: CallerOf, choices: Choices, bus: ResourceBus) -> None:
        self._caller_of, self._choices, self._bus = caller_of, choices, bus
        # by connection and resource, the function that ends it
        self._subscribed: dict[tuple[int, str], Callable[[], None]] = {}
        self._sendings: set[asyncio.Task[None]] = set()  # the event loop keeps only weak references to tasks

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Subscribe a client of the handshake era: updates use the connection, until it closes or the client
        unsubscribes."""
        uri, caller = str(params.uri), self._caller_of(ctx)
        await _check_own(self._choices.of(ctx), [uri], caller)
        connection = ctx.session._connection
        key = (id(connection), uri)
        await self._started()
        if key in self._subscribed:  # after the last await: the same request may have come twice at once
            return EmptyResult()

        def notify(event: ServerEvent) -> None:
            if isinstance(event, ResourceUpdated):
                sending = asyncio.create_task(ctx.session.send_resource_updated(uri))
                self._sendings.add(sending)
                sending.add_done_callback(self._sendings.discard)

        def forget() -> None:
            if self._subscribed.pop(key, None):
                stop()

        stop = self._bus.hear(Hearing(caller, frozenset({uri}), notify, forget))
        self._subscribed[key] = forget
        connection.exit_stack.callback(forget)
        return EmptyResult()

    async def unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """End a subscription, if there is one."""
        forget = self._subscribed.get((id(ctx.session._connection), str(params.uri)))
        if forget is not None:
            forget()
        return EmptyResult()

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Subscribe a client of the current protocol: updates are part of this request's response."""
        caller, uris = self._caller_of(ctx), [str(uri) for uri in params.notifications.resource_subscriptions or ()]
        await _check_own(self._choices.of(ctx), uris, caller)
        await self._started()
        return await listened(ctx, params, caller, ListenBus(self._bus, caller, uris).listen)

    async def _started(self) -> None:
        """Begin to watch the log. Raises an MCP error for the documented one where the store cannot be watched."""
        try:
            await self._bus.start()
        except Exception as error:
            raise as_mcp(error) from None


async def _check_own(choice: Choice, uris: Iterable[str], caller: Caller) -> None:
    """Check that resources are the caller's own and the key is valid. Raises an MCP error."""
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
        await at_hand(AUTHENTICATION, partial(check_credential, caller))
    except Exception as error:
        raise as_mcp(error) from None
