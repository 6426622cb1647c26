"""`NexusClient` against servers that answer well, wrongly, or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nexus.client.http
from nexus.client import (
    CallFailed,
    ClientError,
    NexusClient,
    NoAnswer,
    NotAuthorized,
    NotReached,
    ServerTokenManager,
    generate_api_key,
)
from nexus.client.methods import CLONE_SECONDS, PoolMethods
from tests.control.stub import free_port, in_process, listening, of_server, said
from tests.control.test_detection import dripping, endless, silent


def told(head: str, content: bytes, *, body: bytes) -> tuple[int, bytes]:
    """An answer that is always the same."""
    return 200, body


def echo(head: str, body: bytes) -> tuple[int, bytes]:
    """A result that tells what was called."""
    request = json.loads(body)
    return 200, said(result={"path": head.split()[1], **request}, id=request["id"])


async def test_it_calls_methods_of_the_pool_and_of_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = in_process(monkeypatch, echo)
    async with NexusClient(stub.port, token="nxs_x") as client:
        made = await client.create_agent(
            "ana", cwd=Path("/srv"), allowed_write_paths=[Path("/srv/a")], disable_tools=("run",)
        )
        assert (made["path"], made["method"]) == ("/rpc", "create_agent")
        assert made["params"] == {
            "agent_id": "ana",
            "cwd": "/srv",
            "allowed_write_paths": ["/srv/a"],
            "disable_tools": ["run"],
        }
        sent = await client.for_agent("ana").send("Hello", "r1")
        assert (sent["path"], sent["method"]) == ("/agent/ana", "send")
        assert sent["params"] == {"content": "Hello", "request_id": "r1", "timeout_seconds": 300.0}
        assert sent["id"] != made["id"]
        with pytest.raises(ValueError, match="for_agent"):
            await client.get_tokens()
    assert "authorization: bearer nxs_x" in stub.heads


async def test_a_name_is_one_part_of_a_path_whatever_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    for agent_id in ["../rpc", "a/b?c#d", "é", "\udcff", "%2e%2e", "a b"]:
        stub = in_process(monkeypatch, echo)
        async with NexusClient(stub.port, token="nxs_x") as client:
            path = (await client.for_agent(agent_id).shutdown())["path"]
        assert path.startswith("/agent/") and not set("/?#") & set(path.removeprefix("/agent/"))


async def test_a_name_of_dots_leads_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for agent_id in ["", ".", "..", "..."]:
        stub = in_process(monkeypatch, echo)
        async with NexusClient(stub.port, token="nxs_x") as client:
            with pytest.raises(CallFailed):
                await client.for_agent(agent_id).shutdown()
        assert stub.requests == []


async def test_it_finds_the_token_anew_for_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEXUS_RPC_TOKEN", raising=False)
    tokens = ServerTokenManager(8765, tmp_path)
    stub = in_process(monkeypatch, of_server("nxk_it"))
    async with NexusClient(stub.port, nexus_dir=tmp_path) as client:
        with pytest.raises(NotAuthorized, match=f"no token for port {stub.port}"):
            await client.list_agents()
        tokens.generate_fresh()
        with pytest.raises(NotAuthorized, match="no"):
            await client.list_agents()
        tokens.token_path.chmod(0o644)
        with pytest.raises(NotAuthorized, match="chmod 600"):
            await client.list_agents()
        monkeypatch.setenv("NEXUS_RPC_TOKEN", "nxk_it")
        assert await client.list_agents() == [{"agent_id": "ana"}]
        for garbage in ("a\nb", "é", "a b", "\x00"):
            with pytest.raises(NotAuthorized, match="other characters"):
                await NexusClient(stub.port, token=garbage).list_agents()


async def test_it_waits_longer_for_an_agent_that_may_get_a_clone() -> None:
    waits = []

    class Client(PoolMethods):
        async def call(
            self, method: str, params: Mapping[str, Any], *, of_agent: bool = False, seconds: float = 0
        ) -> dict[str, Any]:
            waits.append((params, seconds))
            return {}

    for worktree in (False, None, True):
        await Client().create_agent(worktree=worktree)
    assert waits == [({}, 0), ({"worktree": None}, CLONE_SECONDS), ({"worktree": True}, CLONE_SECONDS)]


async def test_it_tells_the_servers_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"code": "NOT_PERMITTED", "details": {"rule": "depth"}}
    answer = said(error={"code": -32602, "message": "Too deep.", "data": data}, id=1)
    stub = in_process(monkeypatch, partial(told, body=answer))
    async with NexusClient(stub.port, token="x") as client:
        with pytest.raises(CallFailed, match=r"Too deep\.") as failed:
            await client.create_agent()
    assert (failed.value.code, failed.value.data) == (-32602, data)


async def test_it_believes_no_answer_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for body in [
        b"",
        b"<html>",
        b"\xff",
        b"{}",
        b"[]",
        b"[" * 100_000,
        said(result={}, id=7),
        said(result={}, id=True),
        said(result=[], id=1),
        said(result=None, id=1),
        said(error="no", id=1),
    ]:
        stub = in_process(monkeypatch, partial(told, body=body))
        async with NexusClient(stub.port, token="x") as client:
            with pytest.raises(NotReached):
                await client.shutdown_server()


@pytest.mark.usefixtures("starts_processes")
async def test_it_gives_up_on_who_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for speak in (silent, dripping):
        async with listening(speak) as port, NexusClient(port, token="x", timeout=0.1) as client:
            with pytest.raises(NoAnswer, match="may be done all the same"):
                await client.list_agents()
    monkeypatch.setattr(nexus.client.http, "MAX_RESPONSE_BYTES", 2**20)
    async with listening(endless) as port, NexusClient(port, token="x") as client:
        with pytest.raises(NotReached, match="larger"):
            await client.list_agents()
    async with NexusClient(free_port(), token="x") as client:
        with pytest.raises(NotReached, match="nexus serve --control"):
            await client.list_agents()


async def test_every_error_is_one_kind() -> None:
    kinds: list[Any] = [NotReached, NoAnswer, NotAuthorized, CallFailed]
    assert all(issubclass(kind, ClientError) for kind in kinds)
    async with NexusClient(8765, "no such host", token=generate_api_key()) as client:
        with pytest.raises(ClientError):
            await client.list_agents()
