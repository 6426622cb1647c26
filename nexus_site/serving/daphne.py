"""Daphne with what a hub needs: limits on requests, senders that wait for slow readers, and an orderly end."""

from __future__ import annotations

# Daphne installs Twisted's asyncio reactor when it is imported, so it must come before the rest of Twisted.
from daphne.server import Server  # isort:skip
import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from autobahn.exception import Disconnected
from daphne.http_protocol import HTTPFactory, WebRequest
from daphne.ws_protocol import WebSocketFactory, WebSocketProtocol
from twisted.internet import reactor as installed_reactor
from twisted.internet.interfaces import IPushProducer
from twisted.logger import globalLogBeginner
from zope.interface import implementer

from nexus.core import waiting
from nexus.core.operations.errors import Code, NexusError
from nexus_site import ending
from nexus_site.serving.bounds import BODY_SECONDS, MAX_BODY_BYTES
from nexus_site.serving.intake import Intake, Receiving

reactor: Any = installed_reactor  # its type does not show the methods of an asyncio reactor
# its timers follow the date: if the clock is set back an hour, they would stall for an hour
reactor.seconds = time.monotonic

# The answers to data that is no HTTP, or too large, before the endpoint is known: like those of JSON-RPC.
NO_HTTP = (
    b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": '
    b'"This is no HTTP request, or its head is over 64 KiB."}}'
)
BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(NO_HTTP), NO_HTTP)
)
REQUEST_SECONDS = BODY_SECONDS + 10  # for a whole request, head and body, to arrive
MAX_HEADER_BYTES = 64 * 1024  # of a request's head; an endpoint may allow less, and says so
MAX_FRAME_BYTES = 64 * 1024  # of a client's WebSocket message: filters and cursors are small
MAX_UNREAD_FRAMES = 64  # messages of one client that the application has not read yet
CLOSE_SECONDS = 60  # for a slow WebSocket client to read the last messages
TAKE_SECONDS, TAKE_BYTES = 15, 4096  # a client that reads less than this in this time is dropped
LEFT_SECONDS = 1  # for a client's tasks to end by themselves after it left
ACCEPTED_AT_ONCE = 20  # new connections that a round of the event loop takes: some 2 ms
# How long a thread keeps the interpreter. A call waits for it several times, at each statement for one: with Python's
# own 5 ms, many calls at once made a read of another key take 40 ms.
SWITCH_SECONDS = 0.001
QUIET_SECONDS, DRAIN_SECONDS = 0.5, 10  # the end waits while calls still finish, but not for ever


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


class Incoming:
    """The messages for an application that it has not read yet; one task reads them."""

    __slots__ = ("_came", "_messages")

    def __init__(self) -> None:
        self._messages: list[Any] = []
        self._came: asyncio.Future[None] | None = None  # while it waits for one

    def put_nowait(self, message: Any) -> None:
        self._messages.append(message)
        if self._came is not None and not self._came.done():
            self._came.set_result(None)

    async def get(self) -> Any:
        while not self._messages:
            self._came = asyncio.get_running_loop().create_future()
            await self._came
        return self._messages.pop(0)

    def qsize(self) -> int:
        return len(self._messages)


class Request(WebRequest):  # type: ignore[misc]  # Daphne has no types
    """A request that must arrive in time, stores no more of its body than allowed, and pauses for a slow reader."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parsePOSTFormSubmission = False  # parsing of the body into arguments, which nobody reads
        self.flow = Flow()
        self.kept = 0
        self.deadline = reactor.callLater(REQUEST_SECONDS, self.channel.forceAbortClient)

    def gotLength(self, length: int | None) -> None:
        super().gotLength(length if length is None else min(length, MAX_BODY_BYTES + 1))

    def handleContentChunk(self, data: bytes) -> None:
        # one byte too many shows the application that the body is too large
        kept = data[: MAX_BODY_BYTES + 1 - self.kept]
        self.kept += len(kept)
        super().handleContentChunk(kept)

    def process(self) -> Any:
        self._arrived()
        self.registerProducer(self.flow, True)
        return super().process()

    def finish(self) -> None:
        self.unregisterProducer()
        super().finish()

    def handle_exception(self, exception: BaseException) -> None:
        """Cut the connection if the answer has begun, since it can no longer become an error. An exception here would
        end the server's watch over all applications, and each that fails later would leave its client waiting."""
        if not self._response_started:
            super().handle_exception(exception)
        elif not self.finished and self.channel is not None:
            self.channel.forceAbortClient()

    def connectionLost(self, reason: Any) -> None:
        self._arrived()
        self.flow.resumeProducing()
        super().connectionLost(reason)

    def _arrived(self) -> None:
        if self.deadline.active():
            self.deadline.cancel()


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
    def log(self, request: Any) -> None:
        """Write no access log: Twisted's log is not used."""

    def buildProtocol(self, addr: Any) -> Any:
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = Request
        channel = protocol._channel  # the only way to set its limits
        channel.totalHeadersSize = channel.MAX_LENGTH = MAX_HEADER_BYTES

        def refuse(line: bytes = b"") -> None:
            channel.transport.write(BAD_REQUEST)
            channel.loseConnection()

        channel.lineLengthExceeded = channel._respondToBadRequestAndDisconnect = refuse
        connect, lose = protocol.makeConnection, protocol.connectionLost

        def connected(transport: Any) -> None:
            del protocol.makeConnection
            self.server.outgoing.add(Outgoing(transport))
            protocol.dataReceived = Receiving(self.server.intake, transport, protocol).received
            connect(transport)

        def lost(reason: Any) -> None:
            lose(reason)
            # Each of these refers to the connection: a ring, which thousands of connections leave until a collection.
            del protocol.connectionLost, protocol.dataReceived
            del channel.lineLengthExceeded, channel._respondToBadRequestAndDisconnect

        protocol.makeConnection, protocol.connectionLost = connected, lost
        return protocol


class Outgoing:
    """What waits in a connection's buffer, in any protocol: a client that reads nothing is dropped."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.taken = self.taken_before = 0
        self.waited = False
        write = transport.writeSomeData

        def counted(data: bytes) -> Any:
            count = write(data)
            self.taken += count if isinstance(count, int) and count > 0 else 0  # otherwise it is an error
            return count

        transport.writeSomeData = counted

    def look(self) -> bool:
        """Drop a client that read too little since the last check; return whether the connection still exists."""
        waits = bool(self.transport.dataBuffer or self.transport._tempDataBuffer)
        if waits and self.waited and self.taken - self.taken_before < TAKE_BYTES:
            self.transport.abortConnection()
        self.waited, self.taken_before = waits, self.taken
        if self.transport.disconnected:
            del self.transport.writeSomeData  # which refers to this: a ring
        return not self.transport.disconnected


def few_at_once(port: Any) -> Any:
    """Make a port accept few connections in a round of the event loop. Twisted itself accepts more per round as more
    come."""
    accept = port.doRead

    def accept_few() -> None:
        port.numberAccepts = ACCEPTED_AT_ONCE
        accept()

    port.doRead = accept_few
    return port


class HubServer(Server):  # type: ignore[misc]
    """Serves `application` on listening sockets; `ready` is called once it accepts connections."""

    def __init__(self, application: Any, listening: Sequence[socket.socket], ready: Callable[[], None]) -> None:
        super().__init__(application, ["the sockets"], server_name="nexus", application_close_timeout=CLOSE_SECONDS)
        self.outgoing: set[Outgoing] = set()
        self.intake = Intake()
        self.sockets = listening
        self.ready = ready
        self.failed: BaseException | None = None

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
        self.loop: asyncio.AbstractEventLoop = reactor._asyncioEventloop
        asyncio.set_event_loop(self.loop)
        self.stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            self.loop.add_signal_handler(number, self.stopping.set)
        if ending.is_asked():
            self.stopping.set()
        serving = self.loop.create_task(self._serve())
        serving.add_done_callback(lambda task: reactor.stop())
        sys.setswitchinterval(SWITCH_SECONDS)
        reactor.run(installSignalHandlers=False)
        serving.result()

    async def _serve(self) -> None:
        lifespan = Lifespan(self.application)
        await lifespan.startup()
        ports = []
        for listening in self.sockets:
            ports.append(few_at_once(reactor.adoptStreamPort(listening.fileno(), listening.family, self.http_factory)))
            listening.close()  # the reactor has its own
        reactor.callLater(1, self.application_checker)
        reactor.callLater(2, self.timeout_checker)
        reactor.callLater(TAKE_SECONDS, self._drop_who_takes_nothing)
        self.ready()
        await self.stopping.wait()
        for port in ports:
            port.stopListening()
        waiting.waiter().close()
        await self._drained()
        await lifespan.shutdown()
        for task in self._running():
            task.cancel()
        if tasks := self._running():
            await asyncio.wait(tasks, timeout=1)

    def _drop_who_takes_nothing(self) -> None:
        self.outgoing = {outgoing for outgoing in self.outgoing if outgoing.look()}
        reactor.callLater(TAKE_SECONDS, self._drop_who_takes_nothing)

    def protocol_disconnected(self, protocol: Any) -> None:
        """End what serves a client that left, without a line in the log."""
        super().protocol_disconnected(protocol)
        if instance := self.connections[protocol].get("application_instance"):
            self.loop.call_later(LEFT_SECONDS, instance.cancel)

    async def _drained(self) -> None:
        """Return when no call is under way, or the remaining ones do not end: streams, or calls that take too long."""
        deadline = self.loop.time() + DRAIN_SECONDS
        while (tasks := self._running()) and self.loop.time() < deadline:
            done, _ = await asyncio.wait(tasks, timeout=QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return

    def _running(self) -> list[asyncio.Future[Any]]:
        instances = (details.get("application_instance") for details in self.connections.values())
        return [instance for instance in instances if instance is not None and not instance.done()]

    def create_application(self, protocol: Any, scope: Any) -> Any:
        """Create the application like Daphne, with a queue that needs a fifth of the memory: most calls wait only for
        the end."""
        assert "application_instance" not in self.connections[protocol]
        incoming = Incoming()
        scope.setdefault("asgi", {"version": "3.0"})
        running = self.application(scope=scope, receive=incoming.get, send=partial(self.handle_reply, protocol))
        self.connections[protocol]["application_instance"] = asyncio.ensure_future(running)
        return incoming

    async def handle_reply(self, protocol: Any, message: Any) -> None:
        """Send, and return when the client has read enough of it, so that buffers stay bounded."""
        if message["type"] == "http.response.body" and protocol.method == b"HEAD":
            message = {**message, "body": b""}  # Twisted drops only its first piece, as Daphne passes it
        if message["type"] == "http.response.start" and self.stopping.is_set() and protocol.channel is not None:
            protocol.channel.persistent = False  # otherwise a client that keeps calling delays the end
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        with contextlib.suppress(Disconnected):  # it is just leaving
            await super().handle_reply(protocol, message)
        await protocol.flow.wait()


class Lifespan:
    """The ASGI lifespan of an application, which Daphne does not send."""

    def __init__(self, application: Any) -> None:
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.outgoing: asyncio.Queue[Any] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": {}}
        self.task = asyncio.ensure_future(application(scope, self.incoming.get, self.outgoing.put))

    async def startup(self) -> None:
        """Start the application. Raises CONFIG_ERROR when it does not start."""
        await self.incoming.put({"type": "lifespan.startup"})
        answer = await self.outgoing.get()
        if answer["type"] != "lifespan.startup.complete":
            raise NexusError(Code.CONFIG_ERROR, answer.get("message") or "The application did not start.")

    async def shutdown(self) -> None:
        await self.incoming.put({"type": "lifespan.shutdown"})
        await self.task
