"""Subscriptions: one watch of the event log per server, however many clients listen."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    EmptyResult,
    ResourceUpdatedNotification,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from coordination.models import ID_LENGTH
from mcp_bridge import features, presence
from mcp_bridge.context import CallerOf, Context, as_mcp, end_of_connection, session_of
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import check_credential
from nexus.core.operations.errors import NexusError
from nexus.core.operations.registry import TOOLSETS, Choice
from nexus.core.waiting import AUTHENTICATION, WRITERS, in_thread, on_loop_or_thread, waiter

if TYPE_CHECKING:
    from mcp_bridge.server import Choices

log = logging.getLogger(__name__)

# of all connections, the last of which no agent takes; of those with one agent's key, which cannot crowd out others
MAX_HEARINGS, MOST_OF_AGENT = 1024, 64


@dataclass(frozen=True)
class Update(ResourceUpdated):
    """A change of a resource, with the events that made it."""

    events: tuple[Any, ...] = field(default=(), compare=False)


@dataclass(frozen=True, eq=False)
class Hearing:
    """One subscription: the caller, its resources, and how to notify and end it."""

    caller: Caller
    uris: frozenset[str]
    notify: Callable[[ServerEvent], None]
    end: Callable[[], None]


class ResourceBus:
    """Notifies subscribers of changes by any process, from the event log, as long as their keys are valid."""

    def __init__(self) -> None:
        self._hearings: set[Hearing] = set()
        self._of_agent: Counter[str | None] = Counter()
        self._of_uri: defaultdict[str, set[Hearing]] = defaultdict(set)
        self._updated: defaultdict[str, list[Any]] = defaultdict(list)  # by URI, the events
        self._following: asyncio.Task[None] | None = None
        self._parked: asyncio.Future[None]

    async def start(self) -> None:
        """Begin to watch; after it returns, no change is missed. Raises the error that prevents the watch."""
        await asyncio.shield(self._watch())

    def hear(self, hearing: Hearing) -> Callable[[], None]:
        """Begin to notify, after `start`; the returned function ends it. Raises an MCP error at a limit."""
        agent_id = hearing.caller.agent_id
        if len(self._hearings) >= MAX_HEARINGS - (0 if agent_id is None else MOST_OF_AGENT):
            raise MCPError(INTERNAL_ERROR, "Too many subscriptions are open; end some.")
        if agent_id is not None and self._of_agent[agent_id] >= MOST_OF_AGENT:
            raise MCPError(INTERNAL_ERROR, f"Too many subscriptions of {agent_id!r} are open; end some.")
        self._hearings.add(hearing)
        self._of_agent[agent_id] += 1
        for uri in hearing.uris:
            self._of_uri[uri].add(hearing)
        self._watch()
        return partial(self._forget, hearing)

    def _forget(self, hearing: Hearing) -> None:
        if hearing not in self._hearings:
            return  # it was ended twice
        self._hearings.discard(hearing)
        self._of_agent[hearing.caller.agent_id] -= 1
        if not self._of_agent[hearing.caller.agent_id]:
            del self._of_agent[hearing.caller.agent_id]
        for uri in hearing.uris:
            self._of_uri[uri].discard(hearing)
            if not self._of_uri[uri]:
                del self._of_uri[uri]
        # otherwise another one is starting
        if not self._hearings and self._following is not None and self._parked.done():
            self._following.cancel()
            self._following = None

    def _watch(self) -> asyncio.Future[None]:
        """Watch the log, if nobody does; the returned future is done once no change is missed."""
        if self._following is None or self._following.done():
            self._parked = asyncio.get_running_loop().create_future()
            self._following = asyncio.create_task(self._follow(self._parked))
        return self._parked

    def notify(self, connection: str | None, event: ServerEvent) -> None:
        """Pass an event to the subscriptions of one connection."""
        for hearing in list(self._hearings):
            if hearing.caller.connection == connection:
                hearing.notify(event)

    async def _follow(self, ready: asyncio.Future[None]) -> None:
        try:
            async with waiter().park(self._note) as parked:
                ready.set_result(None)
                while True:
                    await parked.wait(math.inf)
                    updated, self._updated = self._updated, defaultdict(list)
                    await self._notify(updated)
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            ready.cancel()  # no effect once it has a result

    async def _notify(self, updated: Mapping[str, Sequence[Any]]) -> None:
        for hearing in {hearing for uri in updated for hearing in self._of_uri.get(uri, ())}:
            try:
                await on_loop_or_thread(AUTHENTICATION, partial(check_credential, hearing.caller))
            except NexusError:
                hearing.end()
            except DatabaseError as error:
                # a caller that cannot be checked gets no notice
                log.warning("A notice of a change was not sent (%s).", error)
            else:
                for uri in sorted(hearing.uris & updated.keys()):
                    hearing.notify(Update(uri, tuple(updated[uri])))

    def _note(self, event: Any) -> bool:
        changed = [
            uri
            for toolset in TOOLSETS.values()
            for resource in toolset.agent_resources
            for agent_id in resource.changed(event)
            # A client may spell the id with or without percent-encoding.
            for uri in (resource.uri(agent_id), resource.prefix + agent_id)
        ]
        for uri in changed:
            self._updated[uri].append(event)
        return bool(changed)


class Pushes:
    """Records which updates were sent to the session of the agent whose resource changed."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop keeps only weak references to tasks

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work that nobody waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def sent(self, ctx: Context, caller: Caller, update: Update) -> None:
        """Record that an update was written to a request's connection, if that belongs to the resource's agent."""
        own = features.agent_of(self._choices.of(ctx), update.uri)
        pushed, agent_id = (own[0].pushed, own[1]) if own else (None, "")
        is_own = agent_id == (caller.agent_id or presence.agent_on(caller.connection))
        if pushed is not None and is_own and _is_read(ctx):
            to = presence.session_on(caller.connection) or caller.connection or caller.transport
            how = f"push over MCP to {to}"[:ID_LENGTH]
            self.begin(self._record(partial(pushed, agent_id, update.events, how)))

    async def _record(self, record: Callable[[], None]) -> None:
        try:
            await in_thread(WRITERS, record)
        except DatabaseError as error:  # there is no evidence of it, then
            log.warning("It was not recorded that a notice was sent (%s).", error)


def _is_read(ctx: Context) -> bool:
    """Return whether a client reads what is written now to the connection of a request. The SDK drops what is written
    to a session without a stream."""
    session = session_of(ctx)
    return session is None or session.streams > 0


MOST_QUEUED = 1_000  # updates of a resource that wait to be written to one stream


class ListenBus:
    """The SDK's SubscriptionBus of one `subscriptions/listen`: what its caller may get, as long as the key is valid."""

    def __init__(self, bus: ResourceBus, caller: Caller, uris: Iterable[str]) -> None:
        self._bus, self._caller, self._uris = bus, caller, frozenset(uris)
        self._queued: defaultdict[str, deque[Update]] = defaultdict(deque)  # by URI
        self.listen = ListenHandler(self)

    def sent(self, uri: str) -> Update:
        """Return the update that the stream has just sent."""
        return self._queued[uri].popleft()

    async def publish(self, event: ServerEvent) -> None:
        """Do nothing: no events are published here."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register the stream's listener; the returned function ends it."""

        def notify(event: ServerEvent) -> None:
            if isinstance(event, Update):
                if len(self._queued[event.uri]) == MOST_QUEUED:  # its client reads nothing
                    stop()
                    self.listen.close()
                    return
                self._queued[event.uri].append(event)
            listener(event)

        stop = self._bus.hear(Hearing(self._caller, self._uris, notify, self.listen.close))
        return stop


class _Session:
    """A request's session that tells which updates it has sent."""

    def __init__(self, session: Any, sent: Callable[[str], None]) -> None:
        self._session, self._sent = session, sent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        await self._session.send_notification(notification, related_request_id=related_request_id)
        if isinstance(notification, ResourceUpdatedNotification):
            self._sent(str(notification.params.uri))


class Subscribers:
    """The subscribed connections."""

    def __init__(self, caller_of: CallerOf, choices: Choices, bus: ResourceBus, pushes: Pushes) -> None:
        self._caller_of, self._choices, self._bus, self._pushes = caller_of, choices, bus, pushes
        # by connection and resource, the function that ends it
        self._subscribed: dict[tuple[ExitStack, str], Callable[[], None]] = {}

    async def subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Subscribe a client of the handshake era: updates use the connection, until it closes or the client
        unsubscribes."""
        uri, caller = str(params.uri), self._caller_of(ctx)
        await _check_own(self._choices.of(ctx), [uri], caller)
        connection = end_of_connection(ctx)
        key = (connection, uri)
        await self._started()
        if key in self._subscribed:  # after the last await: the same request may have come twice at once
            return EmptyResult()

        async def send(update: Update) -> None:
            await ctx.session.send_resource_updated(uri)
            self._pushes.sent(ctx, caller, update)

        def notify(event: ServerEvent) -> None:
            if isinstance(event, Update):
                self._pushes.begin(send(event))

        def forget() -> None:
            if self._subscribed.pop(key, None):
                stop()

        stop = self._bus.hear(Hearing(caller, frozenset({uri}), notify, forget))
        self._subscribed[key] = forget
        connection.callback(forget)
        return EmptyResult()

    async def unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """End a subscription, if there is one."""
        forget = self._subscribed.get((end_of_connection(ctx), str(params.uri)))
        if forget is not None:
            forget()
        return EmptyResult()

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Subscribe a client of the current protocol: updates are part of this request's response."""
        caller, uris = self._caller_of(ctx), [str(uri) for uri in params.notifications.resource_subscriptions or ()]
        await _check_own(self._choices.of(ctx), uris, caller)
        await self._started()
        bus = ListenBus(self._bus, caller, uris)
        session: Any = _Session(ctx.session, lambda uri: self._pushes.sent(ctx, caller, bus.sent(uri)))
        return await bus.listen(replace(ctx, session=session), params)

    async def _started(self) -> None:
        """Begin to watch the log. Raises an MCP error for the documented one where the store cannot be watched."""
        try:
            await self._bus.start()
        except Exception as error:
            raise as_mcp(error) from None


async def _check_own(choice: Choice, uris: Iterable[str], caller: Caller) -> None:
    """Check that resources are the caller's own and the key is valid. Raises an MCP error."""
    for uri in uris:
        own = features.agent_of(choice, uri)
        if own is None:
            those = ", ".join(template.uri_template for template in features.templates(choice)) or "nothing"
            raise MCPError(INVALID_PARAMS, f"This cannot be subscribed to; what can: {those}.", {"uri": uri[:200]})
        resource, agent_id = own
        if caller.agent_id is not None and caller.agent_id != agent_id:
            raise MCPError(
                INVALID_PARAMS, f"This connection may follow the {resource.name} of {caller.agent_id!r} only."
            )
    try:
        await on_loop_or_thread(AUTHENTICATION, partial(check_credential, caller))
    except Exception as error:
        raise as_mcp(error) from None
