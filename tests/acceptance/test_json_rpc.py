"""JSON-RPC over real servers: the published system's sequence, limits by raw sockets, and a port of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.acceptance.hub import SERVERS, START_SECONDS, Hub, serving
from tests.acceptance.processes import nexus
from tests.conftest import Furnish
from tests.ports import free_port

LIST = json.dumps({"jsonrpc": "2.0", "method": "list_agents", "id": 1}).encode()
RUNNERS = """
default = "slow"
[runners.slow]
kind = "rehearsal"
script = [{when = "never", wait = 3600}]
"""


HEAD = b"POST /rpc HTTP/1.1\r\n"
NO_HTTP = {
    "no request": b"nonsense",
    "no header": HEAD + b"nonsense",
    "a line of 100 KB": HEAD + b"x: " + b"y" * 100_000,
    "a path of 100 KB": b"POST /" + b"x" * 100_000 + b" HTTP/1.1",
    "10,000 headers": HEAD + b"x: y\r\n" * 10_000,
    "two lengths": HEAD + b"content-length: 1\r\ncontent-length: 2",
}


class Rpc:
    """A client of a running hub."""

    def __init__(self, hub: Hub, token: Path, port: int | None = None) -> None:
        self.hub, self.token_path = hub, token
        self.url = hub.url if port is None else f"http://127.0.0.1:{port}"
        self.token = token.read_text()

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def call(self, method: str, path: str = "/rpc", /, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "method": method, "params": params, "id": 1}
        told = httpx.post(self.url + path, json=message, headers=self.headers, timeout=START_SECONDS).json()
        assert "error" not in told, told
        return told["result"]

    def raw(self, sent: bytes) -> tuple[int, Any]:
        """The status and the JSON that come back for these bytes."""
        authority = self.url.removeprefix("http://")
        host, _, port = authority.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=START_SECONDS) as connection:
            with contextlib.suppress(ConnectionError):  # it may answer before all is sent
                connection.sendall(sent)
            answer = connection.makefile("rb")
            status = int(answer.readline().split()[1])
            length = 0
            while (line := answer.readline().strip().lower()) != b"":
                if line.startswith(b"content-length:"):
                    length = int(line.split()[1])
            body = answer.read(length)
            return status, json.loads(body) if body else None

    def head(self, *lines: str, path: str = "/rpc", verb: str = "POST") -> bytes:
        """A request's head, with the token."""
        own = [f"Host: {self.url.removeprefix('http://')}", f"Authorization: bEaReR {self.token}"]
        return "\r\n".join([f"{verb} {path} HTTP/1.1", *own, *lines, "", ""]).encode()


def home_with_runners(furnish: Furnish, where: Path) -> Path:
    home = furnish(where / "home")
    (home / "runners.toml").write_text(RUNNERS)
    return home


@pytest.fixture(scope="module", params=SERVERS)
def rpc(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Rpc]:
    """A hub with a pool, under both servers."""
    home = home_with_runners(furnish, tmp_path_factory.mktemp(request.param))
    with serving(home, "--control", "--server", request.param) as hub:
        yield Rpc(hub, home / f"rpc-{hub.address[1]}.token")


def test_it_answers_the_published_sequence(rpc: Rpc, tmp_path: Path) -> None:
    made = rpc.call("create_agent", agent_id="worker", preset="trusted", cwd=str(tmp_path))
    assert made == {"agent_id": "worker", "url": "/agent/worker"}
    said = rpc.call("send", "/agent/worker", content="Hello", request_id="r1")
    assert (said["request_id"], said["halted_at_iteration_limit"]) == ("r1", False) and "Hello" in said["content"]
    assert rpc.call("get_context", "/agent/worker")["message_count"] == 2
    assert rpc.call("get_tokens", "/agent/worker")["messages"] > 0
    assert rpc.call("cancel", "/agent/worker", request_id="r1")["reason"] == "not_found_or_completed"
    assert rpc.call("destroy_agent", agent_id="worker") == {"success": True, "agent_id": "worker"}
    assert rpc.call("list_agents") == {"agents": []}


def padded(rpc: Rpc, size: int) -> bytes:
    """A request whose body has so many bytes."""
    return rpc.head(f"Content-Length: {size}") + LIST + b" " * (size - len(LIST))


def chunked(rpc: Rpc, size: int) -> bytes:
    """The same in a chunk."""
    body = LIST + b" " * (size - len(LIST))
    return rpc.head("Transfer-Encoding: chunked") + b"%x\r\n%s\r\n0\r\n\r\n" % (size, body)


def headed(rpc: Rpc, count: int) -> bytes:
    """A request with so many headers."""
    return rpc.head(f"Content-Length: {len(LIST)}", *(f"X-{number}: x" for number in range(count - 3))) + LIST


def filled(rpc: Rpc, size: int) -> bytes:
    """A request whose headers have so many bytes, and some more."""
    fillers = [f"X-{number}: {'x' * (size // 10)}" for number in range(10)]
    return rpc.head(f"Content-Length: {len(LIST)}", *fillers) + LIST


@pytest.mark.parametrize(
    ("request_of", "most", "more"),
    [(padded, 1_048_576, 1_048_577), (chunked, 1_048_576, 1_048_577), (headed, 128, 129), (filled, 30_000, 33_000)],
)
def test_a_request_has_bounds(rpc: Rpc, request_of: Callable[[Rpc, int], bytes], most: int, more: int) -> None:
    assert rpc.raw(request_of(rpc, most))[0] == 200
    status, told = rpc.raw(request_of(rpc, more))
    assert (status, told["error"]["code"], told["id"]) == (400, -32700, None)


@pytest.mark.parametrize("rpc", ["daphne"], indirect=True)  # uvicorn's parser of heads has other bounds
@pytest.mark.parametrize("what", NO_HTTP)
def test_what_is_no_http_or_too_much_of_it_is_refused_by_the_server_itself(rpc: Rpc, what: str) -> None:
    assert rpc.raw(NO_HTTP[what] + b"\r\n\r\n")[0] == 400


@pytest.mark.parametrize(("asked", "ends"), [("cancel", True), ("leave", False)])
async def test_a_client_that_hangs_up_leaves_its_turn_or_takes_it_along(rpc: Rpc, asked: str, ends: bool) -> None:
    agent = f"left-{asked}"
    rpc.call("create_agent", agent_id=agent)
    params = {"content": "never", "request_id": "r", "on_disconnect": asked}
    message = json.dumps({"jsonrpc": "2.0", "method": "send", "params": params, "id": 1}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(rpc.url.rpartition(":")[2]))
    writer.write(rpc.head(f"Content-Length: {len(message)}", path=f"/agent/{agent}") + message)
    async with asyncio.timeout(START_SECONDS):
        while rpc.call("get_context", f"/agent/{agent}")["message_count"] == 0:  # until it is taken
            await asyncio.sleep(0.02)
        writer.close()
        if ends:
            while rpc.call("send", f"/agent/{agent}", content="never", request_id="r", timeout_seconds=0) != {
                "cancelled": True,
                "request_id": "r",
            }:
                await asyncio.sleep(0.02)
    cancelled = rpc.call("cancel", f"/agent/{agent}", request_id="r")["cancelled"]
    assert cancelled is not ends
    del reader


def test_a_port_of_its_own_has_json_rpc_and_nothing_else(furnish: Furnish, tmp_path: Path) -> None:
    home, own = home_with_runners(furnish, tmp_path), free_port()
    with serving(home, "--control", "--rpc-port", str(own)) as hub:
        rpc = Rpc(hub, home / f"rpc-{own}.token", own)
        assert stat.S_IMODE(rpc.token_path.stat().st_mode) == 0o600 and len(rpc.token) == 47
        assert [line.split()[2] for line in hub.lines if " JSON-RPC " in line] == [
            f"{hub.url}/rpc",
            f"http://127.0.0.1:{own}/rpc",
        ]
        rpc.call("create_agent", agent_id="a")
        assert "Hello" in rpc.call("send", "/agent/a", content="Hello")["content"]
        for path in (
            "/",
            "/rpc",
            "/admin/",
            "/api/v1/agents",
            "/mcp",
            "/healthz",
            "/metrics",
            "/static/admin/css/base.css",
        ):
            answer = httpx.get(rpc.url + path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (405, -32600), path
            assert httpx.post(rpc.url + path).status_code == 401, path
            status = 400 if path in ("/", "/rpc") else 404
            assert httpx.post(rpc.url + path, headers=rpc.headers).status_code == status, path
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{own}/ws/events/")
        assert refused.value.response.status_code == 403
        assert httpx.get(f"{hub.url}/healthz").status_code == 200, "the server's own port has the rest"
        assert Rpc(hub, rpc.token_path).call("list_agents")["agents"][0]["agent_id"] == "a"
        assert hub.stop() == 0
        assert not rpc.token_path.exists()
        assert not [line for line in hub.lines if "Traceback" in line or "ERROR" in line], hub.lines


@pytest.mark.parametrize("host", ["::1", "127.0.0.2"])
def test_the_command_finds_a_server_wherever_it_listens(furnish: Furnish, tmp_path: Path, host: str) -> None:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError:
        pytest.skip("no such address on this machine")
    home = home_with_runners(furnish, tmp_path)
    with serving(home, "--control", "--host", host) as hub:
        port = hub.address[1]
        for verb in ("list", "detect"):
            said = nexus(home, "rpc", verb)
            assert said.returncode == 0, said.stderr
        elsewhere = nexus(home, "rpc", "list", "--port", str(free_port()))
        assert elsewhere.returncode == 1 and str(port) not in elsewhere.stderr


@pytest.mark.parametrize("rpc", ["daphne"], indirect=True)
def test_an_agents_own_server_leaves_the_token_as_it_is(rpc: Rpc) -> None:
    ended = nexus(rpc.hub.home, "runmcp", "--control", "true")
    assert ended.returncode == 0, ended.stderr
    assert rpc.token_path.read_text() == rpc.token
    assert rpc.call("list_agents")


@pytest.mark.parametrize("flag", ["--port", "--rpc-port"])
def test_a_port_that_is_taken_stops_the_start(furnish: Furnish, tmp_path: Path, flag: str) -> None:
    home = furnish(tmp_path / "home")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        other = "--rpc-port" if flag == "--port" else "--port"
        ended = nexus(home, "serve", "--control", flag, str(port), other, str(free_port()))
    assert ended.returncode == 1 and ended.stdout == ""
    assert (
        f"CONFIG_ERROR: Cannot listen on 127.0.0.1:{port}: " in ended.stderr and "listens there already" in ended.stderr
    )
    assert "Traceback" not in ended.stderr and not list(home.glob("*.token")) and not list(home.glob("*pool*.lock"))


def test_a_token_that_cannot_be_written_stops_the_start(furnish: Furnish, tmp_path: Path) -> None:
    home, port = furnish(tmp_path / "home"), free_port()
    (home / f"rpc-{port}.token" / "in-the-way").mkdir(parents=True)
    ended = nexus(home, "serve", "--control", "--port", "0", "--rpc-port", str(port))
    assert ended.returncode == 1
    assert "CONFIG_ERROR: The pool's token cannot be written to" in ended.stderr and "Traceback" not in ended.stderr
    assert not list(home.glob("*.partial")) and not list(home.glob(".*.partial"))


def test_a_port_of_its_own_is_the_pools(tmp_path: Path) -> None:
    ended = nexus(tmp_path / "home", "serve", "--rpc-port")
    assert ended.returncode == 1 and "CONFIG_ERROR" in ended.stderr and "--control" in ended.stderr
    assert not (tmp_path / "home").exists() and "Traceback" not in ended.stderr


def test_without_a_pool_there_is_no_json_rpc(furnish: Furnish, tmp_path: Path) -> None:
    home = furnish(tmp_path / "home")
    with serving(home) as hub:
        assert httpx.post(f"{hub.url}/rpc", content=LIST).status_code == 404
        assert not any("JSON-RPC" in line for line in hub.lines) and not list(home.glob("*.token"))
