"""What strangers try against a hub on this machine, and what the hub answers everybody else meanwhile."""

from __future__ import annotations

import contextlib
import resource
import secrets
import socket
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.acceptance.hub import SERVERS, START_SECONDS, Hub

pytestmark = pytest.mark.parametrize("hub", SERVERS, indirect=True)
SURFACES = ["/mcp", "/api/v1/agents", "/api/v1/stream", "/metrics"]


@pytest.fixture(autouse=True)
def normal_client(hub: Hub) -> Iterator[None]:
    """After every attack a normal client is served as ever."""
    yield
    assert_served(hub)


def assert_served(hub: Hub) -> None:
    assert httpx.get(f"{hub.url}/readyz").status_code == 200
    assert httpx.get(f"{hub.url}/api/v1/agents").status_code == 200


def raw(hub: Hub, *parts: bytes) -> socket.socket:
    connection = socket.create_connection(hub.address, timeout=START_SECONDS)
    for part in parts:
        connection.sendall(part)
    return connection


def status(connection: socket.socket) -> int:
    with connection, connection.makefile("rb") as answer:
        return int(answer.readline().split()[1])


@pytest.mark.parametrize("path", SURFACES)
@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_a_foreign_host_or_origin_reaches_nothing(hub: Hub, path: str, header: dict[str, str]) -> None:
    assert httpx.get(f"{hub.url}{path}", headers=header).status_code in (400, 403)


def test_a_foreign_host_sees_no_page_and_a_foreign_page_changes_nothing(hub: Hub) -> None:
    assert httpx.get(f"{hub.url}/admin/", headers={"Host": "evil.example"}).status_code in (400, 403)
    assert httpx.post(f"{hub.url}/admin/logout/", headers={"Origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_a_foreign_host_or_origin_gets_no_websocket(hub: Hub, header: dict[str, str]) -> None:
    lines = {"Host": hub.authority, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    lines |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **header}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    assert status(raw(hub, f"GET /ws/events/ HTTP/1.1\r\n{head}\r\n".encode())) == 403


def test_an_unknown_websocket_path_is_refused(hub: Hub) -> None:
    with pytest.raises(InvalidStatus), connect(f"ws://{hub.authority}/ws/other/"):
        pass


@pytest.mark.parametrize("path", ["/api/v1/agents", "/api/v1/stream", "/metrics"])
@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Real-IP", "Forwarded", "Via", "X-Client-IP", "CF-Ray"])
def test_a_forwarded_request_is_not_taken_for_a_local_one(hub: Hub, path: str, header: str) -> None:
    answer = httpx.get(f"{hub.url}{path}", headers={header: "127.0.0.1"})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_no_key_reaches_the_log(hub: Hub) -> None:
    key = f"nxs_{secrets.token_hex(24)}"
    for path in [*SURFACES, "/nowhere", f"/{key}", "/api/v1/operations/nothing", "/ws/events/"]:
        for headers in ({}, {"x-api-key": key}, {"authorization": f"Bearer {key}"}, {"host": key}):
            httpx.get(f"{hub.url}{path}", params={"api_key": key}, headers=headers)
    assert not [line for line in hub.lines if key in line]


def test_deep_json_is_refused(hub: Hub) -> None:
    deep = b'{"project_root":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    answer = httpx.post(f"{hub.url}/api/v1/operations/workspace_resolve", content=deep)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "VALIDATION_ERROR")
    rpc = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    headers = {"x-api-key": hub.key("deep"), "accept": "application/json, text/event-stream"}
    assert httpx.post(f"{hub.url}/mcp", content=rpc, headers={**headers, "content-type": "application/json"}).is_error


def test_no_answer_to_head_runs_into_the_next_answer(hub: Hub) -> None:
    host = f"Host: {hub.authority}\r\n"
    asked = f"HEAD /api/v1/schema HTTP/1.1\r\n{host}\r\nGET /readyz HTTP/1.1\r\n{host}Connection: close\r\n\r\n"
    with raw(hub, asked.encode()) as connection, connection.makefile("rb") as answers:
        head, _, rest = answers.read().partition(b"\r\n\r\n")
    size = len(httpx.get(f"{hub.url}/api/v1/schema").content)
    assert f"content-length: {size}".encode() in head.lower() and size > 1_000_000
    assert rest.startswith(b"HTTP/1.1 200 ")


def test_10_000_headers_are_refused(hub: Hub) -> None:
    head = b"".join(b"x-%d: y\r\n" % number for number in range(10_000))
    connection = socket.create_connection(hub.address, timeout=START_SECONDS)
    with contextlib.suppress(OSError):  # it may hang up before it has them all
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: %s\r\n" % hub.authority.encode() + head + b"\r\n")
        assert status(connection) in (400, 431)


def test_slow_bodies_hold_up_no_other_caller(hub: Hub) -> None:
    """Under uvicorn, each takes one of their caller's slots for a second."""
    key = {"x-api-key": hub.key("quick")}
    head = b"POST /api/v1/operations/nexus_info HTTP/1.1\r\nhost: %s\r\ncontent-length: 1000\r\n\r\n{"
    slow = [raw(hub, head % hub.authority.encode()) for _ in range(200)]
    assert httpx.get(f"{hub.url}/api/v1/agents", headers=key).status_code == 200
    for connection in slow:
        connection.close()


def test_2_000_connections_hold_up_nobody(hub: Hub) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    crowd = [raw(hub) for _ in range(2000)]
    try:
        assert_served(hub)
    finally:
        for connection in crowd:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
