"""Daphne with what a hub needs: bounded requests, senders that wait for slow readers, and an orderly end."""

from __future__ import annotations

# Daphne installs Twisted's asyncio reactor when it is imported, so it comes before anything else of Twisted.
from daphne.server import Server  # isort:skip
import asyncio
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from twisted.internet import reactor as installed_reactor
from twisted.internet.interfaces import IPushProducer
from twisted.logger import globalLogBeginner
from zope.interface import implementer

from core import waiting
from nexus_site.serving.bounds import BODY_SECONDS, MAX_BODY_BYTES

reactor: Any = installed_reactor  # its interfaces do not tell what an asyncio reactor has
reactor.seconds = time.monotonic  # its timers follow the date: set back an hour, they would all stall for that long

REQUEST_SECONDS = BODY_SECONDS + 10  # for a whole request, head and body, to arrive
MAX_FRAME_BYTES = 64 * 1024  # of a client's WebSocket message: filters and cursors are small
MAX_UNREAD_FRAMES = 64  # messages of one client that the application has not taken yet
CLOSE_SECONDS = 60  # for a slow WebSocket reader to take what it was told
QUIET_SECONDS, DRAIN_SECONDS = 0.5, 10  # the end waits while calls still finish, but not for ever


@implementer(IPushProducer)
class Flow:
    """Whether the client takes what is sent: Twisted pauses it when the connection's buffer is full."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()

    def pauseProducing(self) -> None:
        self.open.clear()

    def resumeProducing(self) -> None:
        self.open.set()

    stopProducing = resumeProducing


class Request(WebRequest):  # type: ignore[misc]  # Daphne has no types
    """A request that must arrive in time, keeps no more of its body than is allowed, and knows when to pause."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.flow = Flow()
        self.kept = 0
        self.deadline = reactor.callLater(REQUEST_SECONDS, self.channel.forceAbortClient)

    def gotLength(self, length: int | None) -> None:
        super().gotLength(length if length is None else min(length, MAX_BODY_BYTES + 1))

    def handleContentChunk(self, data: bytes) -> None:
        kept = data[: MAX_BODY_BYTES + 1 - self.kept]  # one byte too many tells the application
        self.kept += len(kept)
        super().handleContentChunk(kept)

    def process(self) -> Any:
        self._arrived()
        self.registerProducer(self.flow, True)
        return super().process()

    def finish(self) -> None:
        self.unregisterProducer()
        super().finish()

    def connectionLost(self, reason: Any) -> None:
        self._arrived()
        self.flow.open.set()
        super().connectionLost(reason)

    def _arrived(self) -> None:
        if self.deadline.active():
            self.deadline.cancel()


class Socket(WebSocketProtocol):  # type: ignore[misc]
    """A WebSocket that knows when to pause, and whose client cannot flood the application."""

    def onConnect(self, request: Any) -> Any:
        self.flow = Flow()
        self.transport.unregisterProducer()  # the HTTP request this connection began with
        self.transport.registerProducer(self.flow, True)
        return super().onConnect(request)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.application_queue.qsize() >= MAX_UNREAD_FRAMES:
            self.sendClose(code=4008, reason="too many messages at once")
        else:
            super().onMessage(payload, isBinary)

    def onClose(self, wasClean: bool, code: int, reason: str) -> None:
        if hasattr(self, "flow"):
            self.flow.open.set()
            super().onClose(wasClean, code, reason)


class Factory(HTTPFactory):  # type: ignore[misc]
    def buildProtocol(self, addr: Any) -> Any:
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = Request
        return protocol


class HubServer(Server):  # type: ignore[misc]
    """Serves `application` on a listening socket; `ready` is called once it takes connections."""

    def __init__(self, application: Any, listening: socket.socket, ready: Callable[[], None]) -> None:
        super().__init__(application, endpoints=["the socket"], server_name="nexus", application_close_timeout=1)
        self.socket = listening
        self.ready = ready
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM. Raises what kept the application from starting."""
        self.connections: dict[Any, dict[str, Any]] = {}
        self.http_factory = Factory(self)
        self.ws_factory = WebSocketFactory(self, server=self.server_name)
        self.ws_factory.protocol = Socket
        self.ws_factory.setProtocolOptions(
            allowNullOrigin=True,  # the application judges origins
            openHandshakeTimeout=self.websocket_handshake_timeout,
            closeHandshakeTimeout=CLOSE_SECONDS,
            autoPingTimeout=self.ping_timeout,
            maxMessagePayloadSize=MAX_FRAME_BYTES,
            maxFramePayloadSize=MAX_FRAME_BYTES,
        )
        globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
        self.loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop
        asyncio.set_event_loop(self.loop)
        self.stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            self.loop.add_signal_handler(number, self.stopping.set)
        serving = self.loop.create_task(self._serve())
        serving.add_done_callback(lambda task: reactor.stop())
        reactor.run(installSignalHandlers=False)
        serving.result()

    async def _serve(self) -> None:
        lifespan = Lifespan(self.application)
        await lifespan.startup()
        family, fileno = self.socket.family, self.socket.fileno()
        port = reactor.adoptStreamPort(fileno, family, self.http_factory)
        self.socket.close()  # the reactor has its own
        reactor.callLater(1, self.application_checker)
        reactor.callLater(2, self.timeout_checker)
        self.ready()
        await self.stopping.wait()
        port.stopListening()
        waiting.waiter().close()
        await self._drained()
        await lifespan.shutdown()
        for task in self._running():
            task.cancel()
        if tasks := self._running():
            await asyncio.wait(tasks, timeout=1)

    async def _drained(self) -> None:
        """Return when no call is under way, or those that are do not end: streams, or what takes too long."""
        deadline = self.loop.time() + DRAIN_SECONDS
        while (tasks := self._running()) and self.loop.time() < deadline:
            done, _ = await asyncio.wait(tasks, timeout=QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return

    def _running(self) -> list[asyncio.Future[Any]]:
        instances = (details.get("application_instance") for details in self.connections.values())
        return [instance for instance in instances if instance is not None and not instance.done()]

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Send, and return when the client has taken enough of it: nothing is buffered without bound."""
        await super().handle_reply(protocol, message)
        await protocol.flow.open.wait()


class Lifespan:
    """The ASGI lifespan of an application: Daphne sends none."""

    def __init__(self, application: Any) -> None:
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.outgoing: asyncio.Queue[Any] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        self.task = asyncio.ensure_future(application(scope, self.incoming.get, self.outgoing.put))

    async def startup(self) -> None:
        """Raises RuntimeError when the application does not start."""
        await self.incoming.put({"type": "lifespan.startup"})
        answer = await self.outgoing.get()
        if answer["type"] != "lifespan.startup.complete":
            raise RuntimeError(answer.get("message", "the application did not start"))

    async def shutdown(self) -> None:
        await self.incoming.put({"type": "lifespan.shutdown"})
        await self.task
