"""The pool answers the same over MCP on stdio and HTTP, REST and JSON-RPC."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from nexus.control.rpc.endpoint import CODES, OF_AGENT
from nexus.control.toolset import PREFIX
from nexus.core.operations.errors import ErrorCode
from tests.acceptance.hub import ROOT, START_SECONDS, Hub, serving
from tests.acceptance.processes import environment
from tests.conftest import Furnish

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]
BY_VALUE: dict[str, ErrorCode] = {code.value: code for code in CODES}

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("pool_send", {"agent_id": "kid", "content": "Hello", "request_id": "r"}),
    ("pool_send", {"agent_id": "kid", "content": "Another", "request_id": "r"}),
    ("pool_send", {"agent_id": "kid", "content": ""}),
    ("pool_list_agents", {}),
    ("pool_get_messages", {"agent_id": "kid", "limit": 1}),
    ("pool_get_messages", {"agent_id": "kid", "limit": 0}),
    ("pool_get_tokens", {"agent_id": "kid"}),
    ("pool_get_context", {"agent_id": "kid"}),
    ("pool_cancel", {"agent_id": "kid", "request_id": "r"}),
    ("pool_compact", {"agent_id": "kid", "force": False}),
    ("pool_get_context", {"agent_id": "stranger"}),
    ("pool_destroy_agent", {"agent_id": "stranger"}),
    ("pool_destroy_agent", {"agent_id": "nobody"}),
    ("pool_create_agent", {"preset": "yolo"}),
    ("pool_create_agent", {"preset": "trusted"}),
    ("pool_create_agent", {"agent_id": "a..b"}),
    ("pool_create_agent", {"agent_id": "kid"}),
    ("pool_create_agent", {"model": "none"}),
    ("pool_create_agent", {"unknown": 1}),
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    """A hub with a pool: `lead` and its `kid`, and a `stranger`."""
    with serving(furnish(tmp_path_factory.mktemp("hub") / "home"), "--control") as hub:
        for agent_id, parent in (("lead", None), ("kid", "lead"), ("stranger", None)):
            url = f"{hub.url}/api/v1/control/operations/pool_create_agent"
            preset = "sandboxed" if parent else "trusted"
            given = {"agent_id": agent_id, "preset": preset, **({"parent_agent_id": parent} if parent else {})}
            assert httpx.post(url, json=given).json()["ok"]
        yield hub


@pytest.fixture(scope="module")
def key(hub: Hub) -> str:
    """The lead's."""
    issued: str = hub.call("agent_key_issue", agent_id="lead")["api_key"]
    return issued


def plain(envelope: Any) -> Any:
    """What an envelope holds: the data, or the error."""
    return envelope["data"] if envelope["ok"] else envelope["error"]


async def over_mcp(client: Client) -> list[Any]:
    async with client:
        return [plain((await client.call_tool(name, given)).structured_content) for name, given in CALLS]


def over_rest(hub: Hub, key: str) -> list[Any]:
    url, headers = f"{hub.url}/api/v1/control/operations", {"x-api-key": key}
    return [
        plain(httpx.post(f"{url}/{name}", json=given, headers=headers, timeout=START_SECONDS).json())
        for name, given in CALLS
    ]


def over_rpc(hub: Hub, key: str) -> list[Any]:
    """The same calls by their plain names; an error in the words of the others."""
    answers = []
    for name, given in CALLS:
        method, path, params = name.removeprefix(PREFIX), "/rpc", dict(given)
        if method in OF_AGENT:
            path = f"/agent/{params.pop('agent_id')}"
        told = httpx.post(
            hub.url + path,
            json={"jsonrpc": "2.0", "method": method, "params": params, "id": 1},
            headers={"authorization": f"Bearer {key}"},
            timeout=START_SECONDS,
        ).json()
        if "error" in told:
            error = told["error"]
            assert error["code"] == CODES[BY_VALUE[error["data"]["code"]]]
            answers.append({"message": error["message"], "details": {}, **error["data"]})
        else:
            answers.append(told["result"])
    return answers


async def test_every_transport_gives_the_same_answers(hub: Hub, key: str) -> None:
    rest = over_rest(hub, key)
    assert [("code" in answer) for answer in rest].count(True) == 11, rest
    process = StdioServerParameters(
        command=sys.executable,
        args=[str(ROOT / "manage.py"), "runmcp", "--toolsets", "control"],
        env=environment(hub.home, NEXUS_API_KEY=key, NEXUS_CONTROL="true"),
    )
    others = {
        "JSON-RPC": over_rpc(hub, key),
        "HTTP": await over_mcp(Client(f"{hub.url}/mcp/control?api_key={key}")),
        "stdio": await over_mcp(Client(stdio_client(process))),
    }
    for transport, answers in others.items():
        for (name, given), expected, answer in zip(CALLS, rest, answers, strict=True):
            known = {field: answer[field] for field in expected}
            assert known == expected, (transport, name, given)


def test_a_process_without_a_pool_says_so(home: Path) -> None:
    """The operations are there; the pool is not."""
    with serving(home) as other:
        envelope = httpx.post(f"{other.url}/api/v1/control/operations/pool_list_agents", json={}).json()
        error = envelope["error"]
        assert error["code"] == "POOL_OFF" and "NEXUS_CONTROL=true" in error["message"]
