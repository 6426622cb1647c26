"""Daphne with what a hub needs: limits on requests, senders that wait for slow readers, and an orderly end."""

from __future__ import annotations

# Daphne installs Twisted's asyncio reactor when it is imported, so it must come before the rest of Twisted.
from daphne.server import Server, twisted_loop  # isort:skip
import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Any

from autobahn.exception import Disconnected
from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from twisted.internet import reactor as installed_reactor
from twisted.internet.interfaces import IPushProducer
from twisted.logger import globalLogBeginner
from twisted.web.http import HTTPChannel
from zope.interface import implementer

from nexus.core import waiting
from nexus_site import ending
from nexus_site.serving.bounds import BODY_SECONDS, MAX_BODY_BYTES, MAX_FRAME_BYTES, MAX_HEAD_BYTES
from nexus_site.serving.lifespan import Lifespan

reactor: Any = installed_reactor  # its type does not show the methods of an asyncio reactor

REQUEST_SECONDS = BODY_SECONDS + 10  # for a whole request, head and body, to arrive
MAX_UNREAD_FRAMES = 64  # messages of one client that the application has not read yet
CLOSE_SECONDS = 60  # for a slow WebSocket client to read the last messages
LEFT_SECONDS = 1  # for a client's tasks to end by themselves after it left


@implementer(IPushProducer)
class Flow:
    """Whether the client accepts more data: Twisted pauses it when the connection's buffer is full."""

    __slots__ = ("_closed",)

    def __init__(self) -> None:
        self._closed: asyncio.Event | None = None  # while it is paused

    async def wait(self) -> None:
        """Return when the client accepts more."""
        if self._closed is not None:
            await self._closed.wait()

    def pauseProducing(self) -> None:
        self._closed = self._closed or asyncio.Event()

    def resumeProducing(self) -> None:
        if self._closed is not None:
            self._closed.set()
            self._closed = None

    stopProducing = resumeProducing


class Request(WebRequest):  # type: ignore[misc]  # Daphne has no types
    """A request that must arrive in time, stores no more of its body than allowed, and pauses for a slow reader."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, parsePOSTFormSubmission=False, **kwargs)
        self.flow = Flow()
        self.kept = 0
        self.deadline = twisted_loop.call_later(REQUEST_SECONDS, self.channel.forceAbortClient)

    def gotLength(self, length: int | None) -> None:
        super().gotLength(length if length is None else min(length, MAX_BODY_BYTES + 1))

    def handleContentChunk(self, data: bytes) -> None:
        # one byte too many shows the application that the body is too large
        kept = data[: MAX_BODY_BYTES + 1 - self.kept]
        self.kept += len(kept)
        super().handleContentChunk(kept)

    def process(self) -> Any:
        self.deadline.cancel()
        self.registerProducer(self.flow, True)
        return super().process()

    def finish(self) -> None:
        self.unregisterProducer()
        super().finish()

    def handle_exception(self, exception: BaseException) -> None:
        """Cut the connection: the answer has begun, since `Bounded` answers what fails before. An exception here would
        end Daphne's watch over all applications."""
        if not self.finished and self.channel is not None:
            self.channel.forceAbortClient()

    def connectionLost(self, reason: Any) -> None:
        self.deadline.cancel()
        self.flow.resumeProducing()
        super().connectionLost(reason)


class Channel(HTTPChannel):
    """A connection; Twisted itself answers 400 where the head of a request is too large."""

    totalHeadersSize = MAX_LENGTH = MAX_HEAD_BYTES

    def lineLengthExceeded(self, line: bytes) -> None:
        transport: Any = self.transport
        transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        transport.loseConnection()


class Socket(WebSocketProtocol):  # type: ignore[misc]
    """A WebSocket that pauses for a slow reader, and whose client cannot flood the application."""

    def onConnect(self, request: Any) -> Any:
        self.flow = Flow()
        self.transport.unregisterProducer()  # the HTTP request with which this connection began
        self.transport.registerProducer(self.flow, True)
        return super().onConnect(request)

    def onMessage(self, payload: bytes, isBinary: bool) -> None:
        if self.application_queue.qsize() >= MAX_UNREAD_FRAMES:
            self.sendClose(code=4008, reason="too many messages at once")
        else:
            super().onMessage(payload, isBinary)

    def onClose(self, wasClean: bool, code: int, reason: str) -> None:
        if hasattr(self, "flow"):
            self.flow.resumeProducing()
            super().onClose(wasClean, code, reason)


class Factory(HTTPFactory):  # type: ignore[misc]
    protocol = Channel

    def log(self, request: Any) -> None:
        """Write no access log: Twisted's log is not used."""

    def buildProtocol(self, addr: Any) -> Any:
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = Request
        return protocol


class HubServer(Server):  # type: ignore[misc]
    """Serves `application` on listening sockets; `ready` is called once it accepts connections."""

    def __init__(self, application: Any, listening: Sequence[socket.socket], ready: Callable[[], None]) -> None:
        super().__init__(application, ["the sockets"], server_name="nexus", application_close_timeout=CLOSE_SECONDS)
        self.sockets = listening
        self.ready = ready

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM. Raises the error that prevented the application's start."""
        self.connections: dict[Any, dict[str, Any]] = {}
        self.http_factory = Factory(self)
        self.ws_factory = WebSocketFactory(self, server=self.server_name)
        self.ws_factory.protocol = Socket
        self.ws_factory.setProtocolOptions(
            allowNullOrigin=True,  # the application checks origins
            openHandshakeTimeout=self.websocket_handshake_timeout,
            closeHandshakeTimeout=CLOSE_SECONDS,
            autoPingTimeout=self.ping_timeout,
            maxMessagePayloadSize=MAX_FRAME_BYTES,
            maxFramePayloadSize=MAX_FRAME_BYTES,
        )
        globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
        asyncio.set_event_loop(twisted_loop)
        self.stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            twisted_loop.add_signal_handler(number, self.stopping.set)
        if ending.is_asked():
            self.stopping.set()
        serving = twisted_loop.create_task(self._serve())
        serving.add_done_callback(lambda task: reactor.stop())
        reactor.run(installSignalHandlers=False)
        serving.result()

    async def _serve(self) -> None:
        lifespan = Lifespan(self.application)
        await lifespan.startup()
        ports = []
        for listening in self.sockets:
            ports.append(reactor.adoptStreamPort(listening.fileno(), listening.family, self.http_factory))
            listening.close()  # the reactor has its own
        reactor.callLater(1, self.application_checker)
        reactor.callLater(2, self.timeout_checker)
        self.ready()
        await self.stopping.wait()
        for port in ports:
            port.stopListening()
        waiting.waiter().close()
        await ending.drained(self._running)
        await lifespan.shutdown()
        for task in self._running():
            task.cancel()
        if tasks := self._running():
            await asyncio.wait(tasks, timeout=1)

    def protocol_disconnected(self, protocol: Any) -> None:
        """End what serves a client that left, without a line in the log."""
        super().protocol_disconnected(protocol)
        if instance := self.connections[protocol].get("application_instance"):
            twisted_loop.call_later(LEFT_SECONDS, instance.cancel)

    def _running(self) -> list[asyncio.Future[Any]]:
        instances = (details.get("application_instance") for details in self.connections.values())
        return [instance for instance in instances if instance is not None and not instance.done()]

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Send, and return when the client has read enough of it, so that buffers stay bounded."""
        if message["type"] == "http.response.start" and self.stopping.is_set() and protocol.channel is not None:
            protocol.channel.persistent = False  # otherwise a client that keeps calling delays the end
        with contextlib.suppress(Disconnected):  # it is just leaving
            await super().handle_reply(protocol, message)
        await protocol.flow.wait()
