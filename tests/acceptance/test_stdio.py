"""`runmcp` as an agent's harness starts it: real processes, real pipes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.subscriptions import ResourceUpdated

from tests.acceptance.hub import START_SECONDS, Hub
from tests.acceptance.processes import ROOT, Raw, client, environment, nexus
from tests.conftest import Furnish


@pytest.fixture(scope="module", params=["serves itself", "relayed"])
def at(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish, hub: Hub, request: pytest.FixtureRequest) -> Path:
    """A home whose processes serve themselves, or are relays to the hub beside them."""
    return hub.home if request.param == "relayed" else furnish(tmp_path_factory.mktemp("alone") / "home")


@pytest.fixture
def server(at: Path) -> Iterator[Raw]:
    with Raw(at) as raw:
        raw.greet()
        yield raw


@pytest.fixture(scope="module")
def lasting(at: Path) -> Iterator[Raw]:
    """One process for all that must not harm it."""
    with Raw(at) as raw:
        raw.greet()
        yield raw


@pytest.mark.parametrize("sdk", ["1.x", "2.x"])
def test_it_plays_the_example_flow_with_either_sdk(
    sdk: str, home: Path, project: str, request: pytest.FixtureRequest
) -> None:
    python = request.getfixturevalue("sdk_1") if sdk == "1.x" else sys.executable
    flow = [python, ROOT / "tests/acceptance/example_flow.py", "stdio", project]
    server = [sys.executable, ROOT / "manage.py", "runmcp", "--home", home]
    played = subprocess.run(
        [*map(str, flow), *map(str, server)],
        env=environment(home),
        text=True,
        capture_output=True,
        timeout=START_SECONDS,
    )
    assert played.returncode == 0, played.stderr
    assert "flow complete" in played.stdout


@pytest.mark.parametrize("processes", [4, pytest.param(20, marks=pytest.mark.long)])
def test_all_that_start_at_once_on_a_fresh_home_come_up(tmp_path: Path, processes: int) -> None:
    def start(_: int) -> bool:
        with Raw(tmp_path / "home") as raw:
            raw.greet()
            return bool(raw.call("nexus_info", {})["ok"])

    with ThreadPoolExecutor(processes) as pool:
        assert all(pool.map(start, range(processes)))


HOSTILE = {
    "deep": b'{"agent_id": ' + b"[" * 300 + b"]" * 300 + b"}",
    "surrogate": b'{"agent_id": "\\ud800"}',
    "nul": b'{"agent_id": "a\\u0000b"}',
    "huge number": b'{"agent_id": ' + b"9" * 5000 + b"}",
    "nan": b'{"agent_id": NaN}',
    "boolean": b'{"agent_id": true}',
    "unknown": b'{"agent_id": "a", "bogus": 1}',
    "missing": b"{}",
    "huge string": b'{"agent_id": "' + b"x" * 3_000_000 + b'"}',
    "a list": b"[1]",
    "a string": b'"x"',
}


def test_it_answers_every_line_with_the_envelope(lasting: Raw) -> None:
    calls = [b'{"name":"inbox_count","arguments":' + arguments + b"}" for arguments in HOSTILE.values()]
    for params in (*calls, b'{"name":7}', b"{}"):
        lasting.write(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":' + params + b"}")
        answer = lasting.read()
        assert answer["id"] == 7 and answer["result"]["isError"] is True, params[:100]
        assert answer["result"]["structuredContent"]["error"]["code"] == "VALIDATION_ERROR", params[:100]
        assert lasting.call("inbox_count", {"agent_id": "a"}, number=8)["ok"], "the connection goes on"
    lasting.write(b"this is no JSON")
    assert lasting.read()["error"]["code"] == -32700


@pytest.mark.parametrize("filling", [b'"' + b"x" * 70 * 2**20 + b'"', b"[" + b"[]," * 400_000 + b"0]"])
def test_it_answers_a_line_that_is_too_large_and_goes_on(lasting: Raw, filling: bytes) -> None:
    head = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"inbox_count","arguments":{"agent_id":'
    lasting.write(head + filling + b"}}}")
    answer = lasting.read()
    assert (answer["id"], answer["result"]["structuredContent"]["error"]["code"]) == (7, "CONTENT_TOO_LARGE")
    lasting.write(filling)
    assert lasting.read()["error"]["code"] == -32700
    assert lasting.call("inbox_count", {"agent_id": "a"}, number=8)["ok"], "the connection goes on"


def test_it_writes_nothing_but_protocol_to_stdout_and_ends_when_stdin_closes(server: Raw) -> None:
    server.call("nexus_info", {})
    assert server.process.stdin is not None and server.process.stdout is not None
    server.process.stdin.close()
    assert server.process.stdout.read() == b""
    assert server.process.wait(START_SECONDS) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly_on_a_signal_even_while_a_call_waits(server: Raw, project: str, number: int) -> None:
    arguments = {"project_root": project, "agent_id": "a", "stream": "workspace", "timeout_seconds": 30}
    call = {"name": "event_wait", "arguments": arguments}
    server.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).encode())
    assert server.call("inbox_count", {"agent_id": "a"}, number=2)["ok"], "a parked wait blocks nobody"
    server.process.send_signal(number)
    assert server.process.wait(START_SECONDS) == 0


def test_it_refuses_a_bad_configuration_before_anything_is_written(tmp_path: Path) -> None:
    ended = nexus(tmp_path / "home", "runmcp", "--busy-timeout-ms", "soon")  # the other ways: tests/core/test_config.py
    assert ended.returncode == 1 and ended.stdout == "" and not (tmp_path / "home").exists()
    assert "CONFIG_ERROR" in ended.stderr and "--busy-timeout-ms" in ended.stderr and "Traceback" not in ended.stderr


def test_it_refuses_an_unknown_key(home: Path) -> None:
    ended = nexus(home, "runmcp", NEXUS_API_KEY="nxs_" + "0" * 48)
    assert ended.returncode == 1 and "NEXUS_API_KEY" in ended.stderr
    assert "nxs_" not in ended.stderr, "a key is never printed"


@pytest.mark.parametrize("revoke", ["agent_key_set_active", "agent_delete"])
def test_it_serves_a_key_no_longer_than_it_is_good(home: Path, hub_beside: Hub, revoke: str) -> None:
    """A process that lasts longer than its key: what it asks for is refused, and the wait it is parked in, too."""
    key = hub_beside.key("ann")
    asked = {"project_root": str(home), "agent_id": "ann", "stream": "workspace", "timeout_seconds": 30}
    waits = {"name": "event_wait", "arguments": asked}
    with Raw(home, NEXUS_API_KEY=key) as raw:
        raw.greet()
        assert raw.call("inbox_pull", {"agent_id": "ann"})["ok"]
        raw.write(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": waits}).encode())
        assert raw.call("inbox_count", {"agent_id": "ann"}, number=3)["ok"]
        hub_beside.call(revoke, agent_id="ann", **({"active": False} if revoke == "agent_key_set_active" else {}))
        hub_beside.call("artifact_put", project_root=str(home), artifact_type="text", content="secret")
        waited = raw.read()
        assert (waited["id"], waited["result"]["structuredContent"]["error"]["code"]) == (2, "NOT_OWNER")
        assert raw.call("inbox_pull", {"agent_id": "ann"}, number=4)["error"]["code"] == "NOT_OWNER"
        assert raw.call("agent_register", {"agent_id": "ann"}, number=5)["error"]["code"] == "NOT_OWNER"


async def test_it_tells_of_mail_that_another_process_sends(home: Path, project: str) -> None:
    async with client(home) as reader, client(home) as writer:
        await reader.call_tool("agent_register", {"agent_id": "ann"})
        async with reader.listen(resource_subscriptions=["nexus://inbox/ann"]) as mail:
            await writer.call_tool(
                "message_create",
                {
                    "project_root": project,
                    "from_agent_id": "bob",
                    "subject": "s",
                    "body": "b",
                    "target": {"strategy": "direct", "agent_id": "ann"},
                },
            )
            assert await asyncio.wait_for(anext(aiter(mail)), START_SECONDS) == ResourceUpdated(uri="nexus://inbox/ann")


@pytest.mark.sqlite
def test_it_makes_a_store_that_only_its_user_can_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Raw(home) as raw:
        raw.greet()
        workspace = raw.call("workspace_resolve", {"project_root": str(home)})["data"]["workspace_id"]
        raw.call("agent_register", {"agent_id": "ann"})
        opened = raw.call("session_open", {"agent_id": "ann", "workspace_id": workspace})["data"]
        written = b"".join(file.read_bytes() for file in home.glob("nexus.db*"))
    assert home.stat().st_mode & 0o077 == 0 and (home / "nexus.db").stat().st_mode & 0o077 == 0
    assert opened["session_id"].encode() in written
    assert opened["session_secret"].encode() not in written


async def test_a_first_turn_is_three_calls_by_what_the_tools_say(home: Path, tmp_path: Path) -> None:
    """The client knows an id, a project, and nothing of Nexus."""
    known: dict[str, object] = {"agent_id": "ana", "project_root": str(tmp_path)}
    async with client(home) as other:
        await other.call_tool("agent_register", {"agent_id": "ana"})
        letter = {"subject": "Hello", "body": "Take the parser.", "target": {"strategy": "direct", "agent_id": "ana"}}
        await other.call_tool("join", {"agent_id": "bob", "project_root": str(tmp_path)})
        await other.call_tool("message_create", letter)
    made = []
    async with client(home, "--toolsets", "coordination,files,questions") as ana:
        tools = {tool.name: tool for tool in (await ana.list_tools()).tools}

        async def act(name: str) -> dict[str, Any]:
            made.append(name)
            asked = {each: known[each] for each in tools[name].input_schema["properties"] if each in known}
            envelope = (await ana.call_tool(name, asked)).structured_content
            assert envelope["ok"], envelope
            data: dict[str, Any] = envelope["data"]
            return data

        [first] = [tool.name for tool in tools.values() if str(tool.description).startswith("Your first call")]
        joined = await act(first)
        assert [each["agent_id"] for each in joined["here"]] == ["bob"]
        pulled = await act(joined["next"][0])
        known["ack_message_ids"] = [message["message_id"] for message in pulled["messages"]]
        await act(made[-1])
        assert made == ["join", "inbox_pull", "inbox_pull"]
        counted = (await ana.call_tool("inbox_count", {})).structured_content
        assert counted["data"] == {"unread": 0, "in_flight": 0, "read": 1}
