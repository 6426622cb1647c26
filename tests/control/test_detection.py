"""What listens on a port, and which servers there are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nexus.client.http
from nexus.client import (
    AuthStatus,
    DetectionResult,
    ServerTokenManager,
    detect_server,
    discover_servers,
    discover_token_ports,
    generate_api_key,
    parse_port_spec,
    probe_server,
    wait_for_server,
)
from tests.control.stub import Speak, answering, free_port, here, of_server, said

SECONDS = 60  # a bound against hanging, not a figure


def bytes_first(text: bytes) -> Speak:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()

    return speak


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"[" * 65_536)
        await writer.drain()


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"[")
        await writer.drain()
        await asyncio.sleep(0.001)


@pytest.mark.usefixtures("starts_processes")
async def test_it_sees_that_nobody_listens() -> None:
    assert await detect_server(free_port(), timeout=SECONDS) is DetectionResult.NO_SERVER
    assert not await wait_for_server(free_port(), timeout=0.05, poll_interval=0.01)


@pytest.mark.parametrize("token", [None, generate_api_key()], ids=["none", "one"])
async def test_it_sees_a_server_whether_or_not_that_wants_a_token(token: str | None) -> None:
    async with answering(of_server(token)) as stub:
        assert await detect_server(stub.port, timeout=SECONDS) is DetectionResult.NEXUS_SERVER
        assert await wait_for_server(stub.port, timeout=SECONDS)
    assert "authorization" not in stub.heads


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b""),
        (200, b"\xff\xfe"),
        (200, b"[" * 100_000),
        (200, b'{"jsonrpc": "2.0"}'),
        (200, b'{"jsonrpc": "2.0", "result": 1, "error": {"code": 1, "message": ""}}'),
        (200, b'{"jsonrpc": "2.0", "error": {"code": true, "message": "x"}}'),
        (404, said(error={"code": 1, "message": "no"}, id=None)),
        (500, said(result={}, id=1)),
        (307, b""),
    ],
)
async def test_it_takes_no_other_service_for_a_server(status: int, body: bytes) -> None:
    async with answering(lambda head, content: (status, body)) as stub:
        assert await detect_server(stub.port, timeout=SECONDS) is DetectionResult.OTHER_SERVICE
    assert len(stub.requests) == 1  # a redirection is not followed


@pytest.mark.parametrize("speak", [bytes_first(b"SSH-2.0-x\r\n"), bytes_first(b""), endless])
async def test_it_takes_no_other_protocol_for_a_server(speak: Speak, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nexus.client.http, "MAX_RESPONSE_BYTES", 2**20)
    async with here(speak) as port:
        assert await detect_server(port, timeout=SECONDS) is DetectionResult.OTHER_SERVICE


@pytest.mark.parametrize("speak", [silent, dripping])
async def test_it_waits_for_nobody_longer_than_it_was_told(speak: Speak) -> None:
    async with here(speak) as port:
        assert await detect_server(port, timeout=0.1) is DetectionResult.TIMEOUT
        assert not await wait_for_server(port, timeout=0.1)


@pytest.mark.parametrize("host", ["no such host", "", "a" * 300])
async def test_it_says_that_it_cannot_tell(host: str) -> None:
    assert await detect_server(8765, host, timeout=SECONDS) is DetectionResult.ERROR


async def test_no_proxy_sees_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = ServerTokenManager(8765, tmp_path).generate_fresh()
    async with answering(of_server(token)) as proxy, answering(of_server(token)) as stub:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        found = await probe_server(stub.port, timeout=SECONDS, token_path=tmp_path / "rpc.token")
    assert found.auth is AuthStatus.OK and proxy.requests == []


@pytest.mark.usefixtures("starts_processes")
async def test_it_waits_for_a_server_that_comes() -> None:
    port = free_port()

    async def start() -> asyncio.Server:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            body = said(error={"code": -32600, "message": "no"}, id=None)
            writer.write(f"HTTP/1.1 401 X\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            writer.close()

        return await asyncio.start_server(connected, "127.0.0.1", port)

    waiting = asyncio.create_task(wait_for_server(port, timeout=SECONDS, poll_interval=0.01))
    while not waiting.done() and await detect_server(port) is not DetectionResult.NO_SERVER:
        pass
    async with await start():
        assert await waiting


async def test_it_tells_what_a_server_says_to_a_token(tmp_path: Path) -> None:
    token = ServerTokenManager(8765, tmp_path).generate_fresh()
    path, none = tmp_path / "rpc.token", tmp_path / "none.token"
    async with answering(of_server(token)) as stub:
        ok = await probe_server(stub.port, timeout=SECONDS, token_path=path)
        assert (ok.auth, ok.agents, ok.token_present, ok.error) == (AuthStatus.OK, [{"agent_id": "ana"}], True, None)
        assert ok.base_url == f"http://127.0.0.1:{stub.port}" and ok.detection is DetectionResult.NEXUS_SERVER
        missing = await probe_server(stub.port, timeout=SECONDS, token_path=none)
        assert (missing.auth, missing.token_present, missing.agents) == (AuthStatus.REQUIRED, False, None)
        ServerTokenManager(8765, tmp_path).generate_fresh()
        other = await probe_server(stub.port, timeout=SECONDS, token_path=path)
        assert (other.auth, other.agents) == (AuthStatus.INVALID_TOKEN, None)
        path.chmod(0o644)
        unsafe = await probe_server(stub.port, timeout=SECONDS, token_path=path)
        assert unsafe.auth is AuthStatus.REQUIRED and unsafe.error is not None and "chmod 600" in unsafe.error
    async with answering(of_server(None)) as stub:
        disabled = await probe_server(stub.port, timeout=SECONDS, token_path=path)
        assert (disabled.auth, disabled.agents) == (AuthStatus.DISABLED, [{"agent_id": "ana"}])


async def test_it_shows_a_token_only_to_the_server_that_it_is_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three services one poses as a server, and none is shown the default port's token or the environment's."""
    monkeypatch.setenv("NEXUS_HOME", str(tmp_path))
    monkeypatch.setenv("NEXUS_RPC_TOKEN", generate_api_key())
    ServerTokenManager(8765, tmp_path).generate_fresh()
    html = answering(lambda head, body: (200, b"<html>"))
    async with html as other, answering(of_server("x")) as posing, answering(of_server("y")) as owner:
        ServerTokenManager(other.port, tmp_path).generate_fresh()
        token = ServerTokenManager(owner.port, tmp_path).generate_fresh()
        ports = [other.port, posing.port, owner.port, posing.port, free_port()]
        found = await discover_servers(ports, timeout=SECONDS, max_concurrency=2)
        assert [server.port for server in found] == [other.port, posing.port, owner.port]
        assert [server.auth for server in found] == [None, AuthStatus.REQUIRED, AuthStatus.INVALID_TOKEN]
    assert "authorization" not in other.heads + posing.heads and token.lower() in owner.heads


def test_it_finds_the_files_of_tokens(tmp_path: Path) -> None:
    assert discover_token_ports(tmp_path / "none") == {}
    names = ["rpc.token", "rpc-9000.token", "rpc-99999.token", "rpc-07.token", "rpc-x.token", "rpc-9001.token.partial"]
    for name in names:
        (tmp_path / name).touch()
    assert discover_token_ports(tmp_path) == {8765: tmp_path / "rpc.token", 9000: tmp_path / "rpc-9000.token"}
    (tmp_path / "rpc-8765.token").touch()
    assert discover_token_ports(tmp_path)[8765] == tmp_path / "rpc-8765.token"


def test_it_reads_lists_of_ports() -> None:
    assert parse_port_spec("8765,9000-9005") == [8765, 9000, 9001, 9002, 9003, 9004, 9005]
    assert parse_port_spec(" 80 , 81-82,80 ") == [80, 81, 82]
    assert len(parse_port_spec(",".join(["1-65535"] * 50))) == 65_535


@pytest.mark.parametrize("spec", ["", ",", "0", "65536", "9-8", "a", "1-", "-1", "1--2", "1-2-3", "٣", "1e3", "+1"])
def test_it_refuses_what_is_no_list_of_ports(spec: str) -> None:
    with pytest.raises(ValueError, match="port"):
        parse_port_spec(spec)


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 20)), min_size=1))
def test_it_lists_each_port_once_in_order(ranges: list[tuple[int, int]]) -> None:
    spec = ",".join(f"{first}-{first + more}" if more else str(first) for first, more in ranges)
    every = [port for first, more in ranges for port in range(first, first + more + 1)]
    assert parse_port_spec(spec) == sorted(set(every), key=every.index)


@given(st.text(alphabet="0123456789,- x٣", max_size=12))
def test_it_reads_ports_or_says_that_they_are_none(spec: str) -> None:
    try:
        ports = parse_port_spec(spec)
    except ValueError:
        return
    assert ports and all(1 <= port <= 65_535 for port in ports)
