"""What NEXUS3's clients send, as its command and its client of commit 194173b sent it, and its in-process client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nexus.compat.nexus3.in_process import Dispatcher, Pool
from nexus.control.models import PoolAgent
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from nexus.core.waiting import READERS, in_thread
from tests.control.wire import TOKEN, Wire

HEADERS = (("Content-Type", "application/json"), ("X-Nexus-Capability", "cap"))  # what it sends beside the token


@dataclass
class Request:
    """A request as its in-process client makes it."""

    method: str
    params: dict[str, Any] | None = None
    id: str | int | None = 1


@pytest.fixture
def wire(committed: None, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Wire:
    configure(control=True, home=tmp_path / "home")
    monkeypatch.setattr(ENDPOINT, "token", TOKEN)
    return Wire()


@pytest.fixture
async def worker(wire: Wire) -> AsyncIterator[Worker]:
    """The worker, in this process."""
    worker = Worker(now())
    working = asyncio.create_task(worker.work())
    yield worker
    worker.stop()
    await working


def body(method: str, **params: Any) -> bytes:
    """A request as its client writes it."""
    parts = {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {}), "id": 1}
    return json.dumps(parts, separators=(",", ":")).encode()


async def call(wire: Wire, path: str, method: str, **params: Any) -> Any:
    return (await wire.araw(path, body(method, **params), headers=HEADERS)).json


async def disabled(agent_id: str) -> list[str]:
    return await in_thread(READERS, lambda: PoolAgent.objects.get(agent_id=agent_id).disabled_tools)


async def test_what_its_command_sends_is_answered(wire: Wire, worker: Worker, tmp_path: Path) -> None:
    assert (await call(wire, "/", "list_agents"))["result"] == {"agents": []}
    made = await call(wire, "/", "create_agent", agent_id="ann", preset="sandboxed", cwd=str(tmp_path),
                      allowed_write_paths=[str(tmp_path / "out")], initial_message="Hello")  # fmt: skip
    assert made["result"]["initial_status"] == "queued" and made["result"]["url"] == "/agent/ann"
    said = await call(wire, "/agent/ann", "send", content="Hi", request_id="3d6fb2f0c4a81e57")
    assert said["result"]["content"].endswith("You said: Hi")
    assert {"total", "budget", "available"} <= (await call(wire, "/agent/ann", "get_tokens"))["result"].keys()
    assert (await call(wire, "/agent/ann", "get_context"))["result"]["message_count"] == 4
    assert (await call(wire, "/agent/ann", "compact", force=True))["result"]["compacted"] is False
    assert (await call(wire, "/", "destroy_agent", agent_id="ann"))["result"] == {"success": True, "agent_id": "ann"}


async def test_a_number_may_name_a_request(wire: Wire, worker: Worker, tmp_path: Path) -> None:
    await call(wire, "/", "create_agent", agent_id="ann", cwd=str(tmp_path))
    said = await call(wire, "/agent/ann", "send", content="Hi", request_id=7)
    assert said["result"]["request_id"] == 7, "as it was given"
    ended = await call(wire, "/agent/ann", "cancel", request_id=7)
    assert ended["result"] == {"cancelled": False, "request_id": 7, "reason": "not_found_or_completed"}
    refused = await call(wire, "/agent/ann", "send", content="Hi", request_id=True)
    assert refused["error"]["code"] == -32602
    gone = tmp_path / "gone"
    gone.mkdir()
    await call(wire, "/", "create_agent", agent_id="bob", cwd=str(gone))
    gone.rmdir()
    failed = await call(wire, "/agent/bob", "send", content="Hi", request_id=7)
    assert failed["error"]["data"]["details"]["request_id"] == 7, "in the details of an error, too"


async def test_its_names_of_tools_are_understood(wire: Wire, tmp_path: Path) -> None:
    tools = ["nexus_send", "shell_UNSAFE", "exec", "edit_lines", "git", "clipboard_list", "mcp_github_x", "write_file"]
    await call(wire, "/", "create_agent", agent_id="ann", cwd=str(tmp_path), disable_tools=tools)
    assert await disabled("ann") == ["edit_file", "run", "send", "write_file"]
    for bad in (["nexus_nothing"], ["exec", 1], [["exec"]], "exec", {"exec": True}):
        refused = await call(wire, "/", "create_agent", agent_id="bob", cwd=str(tmp_path), disable_tools=bad)
        assert refused["error"]["code"] == -32602, bad


async def test_its_names_of_models_are_understood(wire: Wire, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(exist_ok=True)
    runners = '[runners.fast]\nkind = "rehearsal"\n[runners.gpt]\nkind = "model"\nmodel = "openrouter:openai/gpt-5.2"\n'
    (tmp_path / "home" / "runners.toml").write_text(runners)
    for number, (model, runner) in enumerate(
        {"fast": "fast", "openrouter/fast": "fast", "openai/gpt-5.2": "gpt"}.items()
    ):
        await call(wire, "/", "create_agent", agent_id=f"a{number}", cwd=str(tmp_path), model=model)
        agent = await PoolAgent.objects.aget(agent_id=f"a{number}")
        assert agent.runner == runner, model
    for bad in ("openrouter/slow", "/", "gpt-5.2/"):
        refused = await call(wire, "/", "create_agent", agent_id="bob", cwd=str(tmp_path), model=bad)
        assert refused["error"]["code"] == -32602, bad


async def test_its_in_process_client_is_answered(wire: Wire, worker: Worker, tmp_path: Path) -> None:
    pool, everywhere = Pool(), Dispatcher()
    given = {"agent_id": "ann", "preset": "trusted", "cwd": str(tmp_path), "disable_tools": ["git"]}
    made = await everywhere.dispatch(Request("create_agent", given), None)
    assert made.error is None and made.result == {"agent_id": "ann", "url": "/agent/ann"}
    ann = pool.get("ann").dispatcher
    said = await ann.dispatch(Request("send", {"content": "Hi", "request_id": 7}), None, capability_token=None)
    assert said.result["content"].endswith("You said: Hi")
    assert (await ann.dispatch(Request("get_context"), "ann", capability_token="cap")).result["message_count"] == 2
    missing = await pool.get("bob").dispatcher.dispatch(Request("send", {"content": "Hi"}), None)
    assert missing.error is not None and missing.error["code"] == -32602
    unknown = await everywhere.dispatch(Request("send", {"content": "Hi"}), None)
    assert unknown.error is not None and unknown.error["code"] == -32601
    refused = await everywhere.dispatch(Request("create_agent", {"agent_id": "eve", "preset": "yolo"}), "ann")
    assert refused.error is not None
    assert (await everywhere.dispatch(Request("destroy_agent", {"agent_id": "ann"}), None)).result["success"] is True
