"""The toolsets of each connection: those it began with, and those it added."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged

from mcp_bridge.choices import Enable, enabling
from mcp_bridge.context import CallerOf, Context, is_modern
from mcp_bridge.subscriptions import ResourceBus
from nexus.core.operations.errors import NexusError
from nexus.core.operations.registry import Choice, Toolset, add
from nexus.core.operations.replies import Outcome
from nexus.core.operations.runner import check_credential, documented
from nexus.core.operations.validation import validated
from nexus.core.waiting import AUTHENTICATION, at_hand


class Choices:
    """The toolsets of each connection.

    A connection begins with the choice that `choice_of` finds in the first request of a session, or in each request
    where there are no sessions. What `toolset_enable` adds stays as long as the `connection` of its caller lasts.
    """

    def __init__(self, caller_of: CallerOf, choice_of: Callable[[Context], Choice], bus: ResourceBus) -> None:
        self._caller_of, self._choice_of, self._bus = caller_of, choice_of, bus
        self._added: dict[str | None, Choice] = {}  # by connection

    def of(self, ctx: Context) -> Choice:
        """Return the current choice of a request's connection."""
        state = ctx.session._connection.state  # there is no public access; without sessions it is new for each request
        if "choice" not in state:
            state["choice"] = self._choice_of(ctx)
        chosen: Choice = state["choice"]
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
            await at_hand(AUTHENTICATION, partial(check_credential, caller))
            data = operation.call(params, caller)
        except Exception as error:
            return Outcome(error=documented(error))
        for toolset in new:
            if toolset not in chosen:
                self._added[caller.connection] = (*self._added.get(caller.connection, ()), toolset)
                if not is_modern(ctx):
                    ctx.session._connection.exit_stack.callback(self._added.pop, caller.connection, None)
                await self._tell(ctx, caller.connection, toolset)
        return Outcome(data)

    async def _tell(self, ctx: Context, connection: str | None, toolset: Toolset) -> None:
        """Send the notice that the lists have grown: to the session, or else to the listeners of this connection."""
        changes: list[tuple[Any, ServerEvent, Callable[[], Awaitable[None]]]] = [
            (toolset.tools, ToolsListChanged(), ctx.session.send_tool_list_changed),
            (toolset.prompts, PromptsListChanged(), ctx.session.send_prompt_list_changed),
            (toolset.references, ResourcesListChanged(), ctx.session.send_resource_list_changed),
        ]
        for any_of, event, send in changes:
            if any_of and is_modern(ctx):
                self._bus.tell(connection, event)
            elif any_of:
                await send()
