"""What the hub's server adds to Daphne that no client sees at once."""

from __future__ import annotations

import contextlib
import gc
import socket
import sys
import time
import weakref
from pathlib import Path

import httpx
import pytest
import time_machine
from twisted.internet import protocol, tcp
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from nexus_site.serving.daphne import ACCEPTED_AT_ONCE, Factory, HubServer, few_at_once, reactor
from tests.acceptance.hub import START_SECONDS, start

FAILING = """
import socket
from nexus_site.serving.daphne import HubServer

async def application(scope, receive, send):
    if scope["type"] == "lifespan":
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})
        return
    if scope["path"] != "/not-begun":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a part", "more_body": scope["path"] == "/begun"})
    raise RuntimeError("of the application")

listening = socket.create_server(("127.0.0.1", 0))
listening.setblocking(False)
port = listening.getsockname()[1]
HubServer(application, [listening], lambda: print("on", port, flush=True)).run()
"""


def test_it_keeps_its_timers_when_the_clock_is_moved() -> None:
    for hours in (1, -1):
        with time_machine.travel(time.time()) as clock:
            timer = reactor.callLater(60, print)
            clock.shift(hours * 3600)
            assert 50 < reactor.timeout() <= 60
            timer.cancel()


@pytest.mark.usefixtures("starts_processes")
def test_it_takes_few_of_many_new_connections_in_a_round() -> None:
    accepted: list[object] = []

    class Counting(protocol.Factory):
        def buildProtocol(self, addr: object) -> protocol.Protocol:
            accepted.append(addr)
            return protocol.Protocol()

    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=100))
        listening.setblocking(False)
        port = few_at_once(reactor.adoptStreamPort(listening.fileno(), listening.family, Counting()))
        opened.callback(port.stopListening)
        for _ in range(3 * ACCEPTED_AT_ONCE):
            opened.enter_context(socket.create_connection(listening.getsockname()))
        for number in (1, 2, 3):
            port.doRead()
            assert len(accepted) == number * ACCEPTED_AT_ONCE
        for transport in reactor.getReaders():
            if isinstance(transport, tcp.Server):
                transport.abortConnection()  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("starts_processes")
def test_a_connection_that_ended_leaves_no_garbage() -> None:
    server = HubServer(None, [], print)
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.setblocking(False)
        port = reactor.adoptStreamPort(listening.fileno(), listening.family, Factory(server))
        opened.callback(port.stopListening)
        opened.enter_context(socket.create_connection(listening.getsockname()))
        gc.disable()
        opened.callback(gc.enable)
        port.doRead()
        [outgoing] = server.outgoing
        transport, channel = weakref.ref(outgoing.transport), weakref.ref(outgoing.transport.protocol._channel)
        outgoing.transport.connectionLost(Failure(ConnectionDone()))  # type: ignore[no-untyped-call]
        assert not outgoing.look()
        server.outgoing.clear()
        del outgoing
        assert transport() is None and channel() is None


@pytest.mark.usefixtures("starts_processes")
def test_it_ends_an_answer_whose_application_fails_and_so_the_next(tmp_path: Path) -> None:
    hub = start(tmp_path, command=[sys.executable, "-c", FAILING], ready="on ")
    url = f"http://127.0.0.1:{next(line for line in hub.lines if line.startswith('on ')).split()[-1]}"
    try:
        for _ in range(2):
            with pytest.raises(httpx.TransportError) as cut:
                httpx.get(f"{url}/begun", timeout=START_SECONDS)
            assert not isinstance(cut.value, httpx.TimeoutException)
            assert httpx.get(f"{url}/done", timeout=START_SECONDS).text == "a part"
            assert httpx.get(f"{url}/not-begun", timeout=START_SECONDS).status_code == 500
    finally:
        hub.process.kill()
        hub.process.wait()
