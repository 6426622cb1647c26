"""Toolsets over real stdio and HTTP, in an installation that has two."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.shared.subscriptions import ToolsListChanged

from tests import toy_app
from tests.acceptance import hub as hubs
from tests.acceptance.hub import START_SECONDS, Hub
from tests.acceptance.processes import environment, pipes
from tests.acceptance.test_mcp_http import HELLO, JSON_RPC
from tests.conftest import Furnish

TOYS = {"toy_add", "toy_list"}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_app.plant(tmp_path_factory.mktemp("installation"))


@pytest.fixture(scope="module")
def hub(command: Path, tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    with hubs.serving(furnish(tmp_path_factory.mktemp("hub") / "home"), program=command) as served:
        yield served


@pytest.fixture
def key(hub: Hub) -> str:
    """A new key of `ann`, for whom no toolsets are stored."""
    hub.call("agent_register", agent_id="ann")
    hub.call("agent_update", agent_id="ann", toolsets=[])
    key: str = hub.call("agent_key_issue", agent_id="ann")["api_key"]
    return key


async def toolsets_of(client: Client) -> set[str]:
    """Which of the two a client has, told by a tool of each."""
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert "toolset_enable" in names or {"inbox_pull", *TOYS} <= names
    return {toolset for toolset, tool in (("coordination", "inbox_pull"), ("toy", "toy_list")) if tool in names}


def over_http(hub: Hub, key: str, where: str = "", **more: Any) -> Client:
    return Client(f"{hub.url}/mcp{where}{'&' if '?' in where else '?'}api_key={key}", **more)


class Session:
    """A session of the older handshake, request by request."""

    def __init__(self, hub: Hub, key: str, where: str = "") -> None:
        self.url, self.headers = f"{hub.url}/mcp{where}", {**JSON_RPC, "x-api-key": key}
        opened = self.post("initialize", **HELLO)
        self.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        self.told: Any = opened.json()["result"]

    def post(self, method: str, where: str | None = None, **params: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        url = self.url if where is None else self.url.partition("/mcp")[0] + f"/mcp{where}"
        return httpx.post(url, json=body, headers=self.headers)

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.post("tools/call", name=tool, arguments=arguments).json()["result"]["structuredContent"]

    def tools(self) -> set[str]:
        return {tool["name"] for tool in self.post("tools/list").json()["result"]["tools"]}


@pytest.mark.parametrize(
    ("where", "chosen", "mode"),
    [
        ("", {"coordination"}, "auto"),
        ("/toy/", {"toy"}, "auto"),
        ("?toolsets=toy", {"toy"}, "legacy"),
        ("?toolsets=all", {"coordination", "toy"}, "auto"),
    ],
)
def test_a_url_chooses_toolsets(hub: Hub, key: str, where: str, chosen: set[str], mode: str) -> None:
    async def seen() -> set[str]:
        async with over_http(hub, key, where, mode=mode) as client:
            assert ("Put your toys back." in (client.instructions or "")) is ("toy" in chosen)
            return await toolsets_of(client)

    assert asyncio.run(seen()) == chosen


@pytest.mark.parametrize(
    ("where", "status", "code"),
    [
        ("/bogus", 404, "NOT_FOUND"),
        ("/toy/more", 404, "NOT_FOUND"),
        ("?toolsets=toy,bogus", 400, "VALIDATION_ERROR"),
        ("?toolsets=", 400, "VALIDATION_ERROR"),
        ("/toy?toolsets=toy", 400, "VALIDATION_ERROR"),
    ],
)
def test_a_url_of_no_toolset_is_refused_in_the_envelope(hub: Hub, key: str, where: str, status: int, code: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    answer = httpx.post(f"{hub.url}/mcp{where}", json=body, headers={**JSON_RPC, "x-api-key": key})
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    if "bogus" in where:
        assert "there are coordination, " in (said := answer.json()["error"]["message"]) and "toy, or all" in said
    assert httpx.post(f"{hub.url}/mcp{where}", json=body, headers=JSON_RPC).status_code == 401, "first of all the key"


def test_a_session_stays_with_its_choice(hub: Hub, key: str) -> None:
    session = Session(hub, key, "/toy")
    assert session.tools() == {*TOYS, "toolset_enable"}
    for elsewhere in ("", "/coordination", "?toolsets=all"):
        assert session.post("tools/list", elsewhere).status_code == 404, "to another URL there is no such session"
    stored = Session(hub, key)
    hub.call("agent_update", agent_id="ann", toolsets=["toy"])
    assert "inbox_pull" in stored.tools(), "a session goes on as it began"
    assert Session(hub, key).tools() == {*TOYS, "toolset_enable"}


def test_a_session_over_http_adds_a_toolset_to_itself_alone(hub: Hub, key: str) -> None:
    mine, other = Session(hub, key), Session(hub, key)
    assert mine.told["capabilities"]["tools"]["listChanged"] is True
    with httpx.stream("GET", mine.url, headers={**mine.headers, "accept": "text/event-stream"}) as stream:
        assert mine.call("toolset_enable", name="toy")["data"]["tools"] == ["toy_add", "toy_list"]
        assert any("notifications/tools/list_changed" in line for line in stream.iter_lines() if "data:" in line)
    assert mine.tools() > TOYS and mine.call("toy_list") == {"toys": []}
    assert not TOYS & other.tools() and other.call("toy_list")["error"]["code"] == "NOT_FOUND"


def test_without_sessions_a_toolset_is_added_to_the_key(hub: Hub, key: str) -> None:
    stranger = hub.call("agent_create", agent_id=f"bob-{os.urandom(4).hex()}")["api_key"]

    async def added() -> tuple[Any, set[str], set[str]]:
        async with over_http(hub, key) as client, over_http(hub, stranger) as other:
            assert client.protocol_version >= "2026"
            async with client.listen(tools_list_changed=True) as events:
                await client.call_tool("toolset_enable", {"name": "toy"})
                event = await asyncio.wait_for(anext(aiter(events)), START_SECONDS)
            return event, await toolsets_of(client), await toolsets_of(other)

    assert asyncio.run(added()) == (ToolsListChanged(), {"coordination", "toy"}, {"coordination"})
    hub.call("agent_key_issue", agent_id="ann")  # a new key is a new connection
    fresh = hub.call("agent_key_issue", agent_id="ann")["api_key"]

    async def seen() -> set[str]:
        async with over_http(hub, fresh) as client:
            return await toolsets_of(client)

    assert asyncio.run(seen()) == {"coordination"}


async def test_a_stdio_process_adds_a_toolset_to_itself(command: Path, tmp_path: Path) -> None:
    async with Client(pipes(environment(tmp_path), program=command)) as client:
        assert await toolsets_of(client) == {"coordination"}
        async with client.listen(tools_list_changed=True) as events:
            await client.call_tool("toolset_enable", {"name": "toy"})
            assert await asyncio.wait_for(anext(aiter(events)), START_SECONDS) == ToolsListChanged()
        assert await toolsets_of(client) == {"coordination", "toy"}
        answer = await client.call_tool("toy_list", {})
        assert answer.structured_content == {"toys": []}


def test_an_unknown_toolset_is_refused_before_anything_is_written(command: Path, tmp_path: Path) -> None:
    for flags, variables in ((["--toolsets=toy,bogus"], {}), ([], {"NEXUS_TOOLSETS": "toy,bogus"})):
        ended = toy_app.run(command, tmp_path / "home", "runmcp", *flags, **variables)
        assert ended.returncode == 1 and ended.stdout == "" and not (tmp_path / "home").exists()
        assert "CONFIG_ERROR" in ended.stderr and "Traceback" not in ended.stderr
        assert "'bogus'" in ended.stderr and "there are coordination, " in ended.stderr
