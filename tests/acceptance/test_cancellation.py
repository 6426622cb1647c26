"""Clients that take nothing and clients that leave: a hub drops the ones, and speaks of neither in its log."""

from __future__ import annotations

import json
import signal
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.acceptance import log
from tests.acceptance.hub import SERVERS, START_SECONDS, Hub, start
from tests.acceptance.pool import until
from tests.conftest import Furnish

CROWD, ROUNDS = 10, 4  # at most; the second is mostly the last
ROOM = 60 * 2**20  # bytes; what a round left unread, were it kept, is twice to three times as much
HUB = """
import os, sys
os.environ["NEXUS_MAX_INLINE_BYTES"] = "1000000"
from nexus_site import launch
from nexus_site.serving import bounds
bounds.UNREAD_SECONDS = 3
launch.main(["nexus", "serve", "--port", "0", "--server", sys.argv[1]])
"""
PEEK = json.dumps({"agent_id": "bob", "limit": 100})
RESET = struct.pack("ii", 1, 0)


@pytest.fixture(scope="module", params=SERVERS)
def full(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    """A hub that drops clients after three seconds that take nothing: 6 MB of mail for bob, 8 of events."""
    where = tmp_path_factory.mktemp(request.param)
    home = furnish(where / "home")
    hub = start(home, command=[sys.executable, "-c", HUB, request.param])
    try:
        for agent_id in ("ann", "bob"):
            hub.call("agent_register", agent_id=agent_id)
        direct = {"strategy": "direct", "agent_id": "bob"}
        for _ in range(7):
            hub.call("message_create", project_root=str(where), from_agent_id="ann", subject="s", body="b" * 900_000,
                     target=direct)  # fmt: skip
        workspace_id = hub.call("workspace_resolve", project_root=str(where))["workspace_id"]
        log.append(hub.home, workspace_id, ["test.made"] * 400, payload=json.dumps({"text": "x" * 20_000}))
        yield hub
    finally:
        hub.process.kill()
        hub.process.wait()


def request(hub: Hub, method: str, path: str, body: str = "", **headers: str) -> socket.socket:
    """A request whose answer nobody has read yet."""
    connection = socket.socket()
    connection.connect(hub.address)
    lines = {"host": hub.authority, "content-length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n{body}".encode())
    return connection


def websocket(hub: Hub, path: str) -> socket.socket:
    wanted = {"upgrade": "websocket", "connection": "Upgrade", "sec_websocket_version": "13"}
    return request(hub, "GET", path, **wanted, sec_websocket_key="AAAAAAAAAAAAAAAAAAAAAA==")


def greeted(hub: Hub, key: str) -> str:
    """A new session of MCP."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    headers = {"x-api-key": key, "accept": "application/json, text/event-stream"}
    greeting = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    session: str = httpx.post(f"{hub.url}/mcp", json=greeting, headers=headers).headers["mcp-session-id"]
    return session


def connected(process: psutil.Process) -> int:
    """How many clients a server has."""
    sockets = process.net_connections("tcp")
    served = {one.laddr for one in sockets if one.status == psutil.CONN_LISTEN}  # not its own to a database
    return sum(one.status == psutil.CONN_ESTABLISHED and one.laddr in served for one in sockets)


def test_clients_that_do_not_read_are_dropped_and_their_memory_with_them(full: Hub) -> None:
    process = psutil.Process(full.process.pid)
    key = full.call("agent_key_issue", agent_id="bob")["api_key"]
    common = {"x_api_key": key, "accept": "application/json, text/event-stream", "content_type": "application/json"}
    session = {**common, "mcp_session_id": greeted(full, key)}
    memory: list[int] = []
    for _ in range(ROUNDS):
        silent = [request(full, "POST", "/api/v1/operations/inbox_peek", PEEK) for _ in range(CROWD)]
        silent += [request(full, "GET", "/api/v1/stream?cursor=0") for _ in range(CROWD)]
        for number in range(CROWD):
            call = {"name": "inbox_peek", "arguments": json.loads(PEEK)}
            rpc = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            silent.append(request(full, "POST", "/mcp", json.dumps(rpc), **session))
        silent += [websocket(full, "/ws/events/?cursor=0") for _ in range(CROWD)]
        until(lambda: connected(process) >= CROWD)  # the first are served
        until(lambda: not connected(process))  # nobody is held on to
        assert httpx.get(f"{full.url}/readyz").status_code == 200
        for connection in silent:
            connection.close()
        memory.append(process.memory_info().rss)
        if len(memory) > 1 and memory[-1] - memory[-2] < ROOM:
            break  # how much the allocator keeps for the next round depends on how many answers met in this one
    until(lambda: process.memory_info().rss - memory[-2] < ROOM)  # no round leaves anything behind
    assert not [line for line in full.lines if not line.startswith("[nexus] ")]


def test_a_client_that_reads_slowly_gets_everything(full: Hub) -> None:
    connection = request(full, "POST", "/api/v1/operations/inbox_peek", PEEK, connection="close")
    connection.settimeout(START_SECONDS)
    pause, got = threading.Event(), bytearray()
    while piece := connection.recv(65_536):
        got += piece
        pause.wait(0.05)  # some 5 s for all of it, of which 1 s may pass without a byte
    assert json.loads(bytes(got).partition(b"\r\n\r\n")[2])["ok"]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_log_of_a_normal_life_and_a_normal_end_is_silent(
    home: Path, project: str, number: int, server: str
) -> None:
    hub = start(home, "--server", server)
    try:
        key = hub.key("ann")
        workspace_id = hub.call("workspace_resolve", project_root=project)["workspace_id"]
        crowd = [connection for _ in range(3) for connection in everyone(hub, key, project)]
        log.append(hub.home, workspace_id, ["test.made"] * 2000)
        for position, connection in enumerate(crowd):
            if position % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()
        process = psutil.Process(hub.process.pid)
        while connected(process):
            log.append(hub.home, workspace_id, ["test.made"])
        remaining = everyone(hub, key, project)
        assert hub.stop(number) == 0
        for connection in remaining:
            connection.close()
    finally:
        hub.process.kill()
        hub.process.wait()
    assert [line for line in hub.lines if not line.startswith("[nexus] ")] == []


def everyone(hub: Hub, key: str, project: str) -> list[socket.socket]:
    """A listener of each kind, and a wait of each kind."""
    where = {"agent_id": "ann", "project_root": project, "stream": "handoff", "timeout_seconds": 30}
    common = {"x_api_key": key, "accept": "application/json, text/event-stream", "content_type": "application/json"}
    session = {**common, "mcp_session_id": greeted(hub, key)}
    params = {"name": "event_wait", "arguments": where}
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    listeners = [
        request(hub, "GET", "/api/v1/stream?cursor=0"),
        websocket(hub, "/ws/events/?cursor=0"),
        request(hub, "POST", "/api/v1/operations/event_wait", json.dumps(where), **common),
        request(hub, "GET", "/mcp", **session),
        request(hub, "POST", "/mcp", call, **session),
    ]
    for connection in listeners[:2]:
        assert connection.recv(1)  # it is served
    return listeners


HUNG = """
import sys, time
from nexus.core import waiting
from nexus_site import launch
waiting.OUTSIDE.submit(time.sleep, 600)
launch.main(["nexus", "serve", "--port", "0"])
"""


def test_a_hub_ends_though_something_outside_never_answers(home: Path) -> None:
    hub = start(home, command=[sys.executable, "-c", HUNG])
    try:
        hub.call("agent_register", agent_id="ann")
        assert hub.stop() == 0
    finally:
        hub.process.kill()
        hub.process.wait()
