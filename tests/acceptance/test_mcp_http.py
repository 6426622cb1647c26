"""`/mcp` as the clients of the field meet it: three SDKs, the conformance suite, keys and sessions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import INVALID_PARAMS

from mcp_bridge.sessions import MAX_SESSIONS
from tests.acceptance.hub import ROOT, START_SECONDS, Hub

HERE = Path(__file__).parent
SCENARIOS = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "prompts-list",
    "dns-rebinding-protection",
    "server-sse-multiple-streams",
]
JSON_RPC = {"accept": "application/json, text/event-stream"}
HELLO: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture
def keys(hub: Hub) -> list[str]:
    """New keys of builder and reviewer, whose inboxes are empty."""
    for agent_id in ("builder", "reviewer"):
        hub.call("agent_register", agent_id=agent_id)
        while mail := hub.call("inbox_pull", agent_id=agent_id)["messages"]:
            hub.call("inbox_ack", agent_id=agent_id, message_ids=[message["message_id"] for message in mail])
    return [hub.call("agent_key_issue", agent_id=agent_id)["api_key"] for agent_id in ("builder", "reviewer")]


def played(command: list[str], where: Path) -> None:
    ended = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=START_SECONDS)
    assert ended.returncode == 0 and "flow complete" in ended.stdout, ended.stdout + ended.stderr


def post(hub: Hub, key: str, method: str, session: str | None = None, **params: Any) -> httpx.Response:
    headers = {**JSON_RPC, "x-api-key": key, **({"mcp-session-id": session} if session else {})}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return httpx.post(f"{hub.url}/mcp", json=body, headers=headers)


@pytest.mark.parametrize("sdk", ["1.x", "2.x"])
def test_the_python_sdks_play_the_example_flow(
    hub: Hub, keys: list[str], project: str, sdk: str, request: pytest.FixtureRequest
) -> None:
    python = request.getfixturevalue("sdk_1") if sdk == "1.x" else sys.executable
    played([python, str(HERE / "example_flow.py"), "http", project, f"{hub.url}/mcp", *keys], ROOT)


def test_the_typescript_sdk_plays_the_example_flow_and_hears_of_its_mail(
    hub: Hub, keys: list[str], project: str, node: Path
) -> None:
    played(["node", str(HERE / "example_flow.mjs"), project, f"{hub.url}/mcp", *keys], node)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_conformance_suite_passes(hub: Hub, keys: list[str], scenario: str, node: Path) -> None:
    url = f"{hub.url}/mcp?api_key={keys[0]}"
    command = [str(node / "node_modules/.bin/conformance"), "server", "--url", url, "--scenario", scenario]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
    assert ended.returncode == 0 and "Passed: 0/0" not in ended.stdout, ended.stdout


def test_a_client_of_the_current_protocol_hears_of_its_mail(hub: Hub, keys: list[str], project: str) -> None:
    uri = "nexus://inbox/reviewer"

    async def hear() -> Any:
        async with (
            Client(f"{hub.url}/mcp?api_key={keys[1]}") as client,
            client.listen(resource_subscriptions=[uri]) as events,
        ):
            assert client.protocol_version >= "2026"
            target = {"strategy": "direct", "agent_id": "reviewer"}
            message = {"from_agent_id": "builder", "subject": "s", "body": "b", "target": target}
            await asyncio.to_thread(hub.call, "message_create", project_root=project, **message)
            return await anext(aiter(events))

    assert asyncio.run(asyncio.wait_for(hear(), START_SECONDS)) == ResourceUpdated(uri=uri)


def test_a_key_is_needed_and_taken_in_three_places(hub: Hub, keys: list[str]) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}

    def status(query: str = "", **headers: str) -> int:
        return httpx.post(f"{hub.url}/mcp{query}", json=body, headers={**JSON_RPC, **headers}).status_code

    assert status() == 401
    assert status(f"?api_key={keys[0]}") == 200
    assert status(**{"x-api-key": keys[0]}) == 200
    assert status(authorization=f"Bearer {keys[0]}") == 200
    assert status(authorization=f"Bearer {keys[0][:-1]}") == 401
    hub.call("agent_key_set_active", agent_id="builder", active=False)
    assert status(**{"x-api-key": keys[0]}) == 401
    hub.call("agent_key_set_active", agent_id="builder", active=True)
    assert status(**{"x-api-key": keys[0]}) == 200


def test_a_connection_acts_as_its_own_agent_only(hub: Hub, keys: list[str]) -> None:
    session = post(hub, keys[0], "initialize", **HELLO).headers["mcp-session-id"]
    answer = post(hub, keys[0], "tools/call", session, name="inbox_peek", arguments={"agent_id": "reviewer"}).json()
    assert answer["result"]["structuredContent"]["error"]["code"] == "NOT_OWNER"
    read = post(hub, keys[0], "resources/read", session, uri="nexus://inbox/reviewer").json()
    assert read["error"]["data"] == {"code": "NOT_OWNER"}


def test_a_session_is_closed_to_everybody_but_the_agent_that_opened_it(hub: Hub, keys: list[str]) -> None:
    session = post(hub, keys[0], "initialize", **HELLO).headers["mcp-session-id"]
    assert post(hub, keys[0], "ping", session).status_code == 200
    assert post(hub, keys[1], "ping", session).status_code == 404


def test_beyond_its_share_an_agent_loses_the_session_it_has_not_used_for_longest(hub: Hub, keys: list[str]) -> None:
    others = post(hub, keys[1], "initialize", **HELLO).headers["mcp-session-id"]
    sessions = [post(hub, keys[0], "initialize", **HELLO).headers["mcp-session-id"] for _ in range(MAX_SESSIONS)]
    assert post(hub, keys[0], "ping", sessions[0]).status_code == 200
    sessions.append(post(hub, keys[0], "initialize", **HELLO).headers["mcp-session-id"])
    answers = [post(hub, keys[0], "ping", session).status_code for session in sessions]
    assert answers == [200, 404, *[200] * (MAX_SESSIONS - 1)]
    assert post(hub, keys[1], "ping", others).status_code == 200


def test_a_call_that_is_not_plain_is_left_to_the_sdk_and_answered_alike(hub: Hub, keys: list[str]) -> None:
    session = post(hub, keys[0], "initialize", **HELLO).headers["mcp-session-id"]
    call = {"name": "agent_get", "arguments": {"agent_id": "reviewer"}}
    plain = post(hub, keys[0], "tools/call", session, **call).json()
    assert plain["result"]["structuredContent"]["ok"]
    others: list[dict[str, Any]] = [{"other": 1}, {"task": {}}, {"_meta": {"progressToken": 7}}]
    for more in others:
        assert post(hub, keys[0], "tools/call", session, **call, **more).json() == plain
    refused = post(hub, keys[0], "tools/call", session, **call, _meta=5).json()
    assert refused["error"]["code"] == INVALID_PARAMS


def test_a_stream_begins_before_anything_has_happened(hub: Hub, keys: list[str]) -> None:
    session = post(hub, keys[0], "initialize", **HELLO).headers["mcp-session-id"]
    headers = {"x-api-key": keys[0], "accept": "text/event-stream", "mcp-session-id": session}
    with httpx.stream("GET", f"{hub.url}/mcp", headers=headers, timeout=START_SECONDS) as stream:
        assert stream.status_code == 200
        assert next(stream.iter_bytes()) == b": open\n\n"


def test_operators_operations_are_no_tools(hub: Hub, keys: list[str]) -> None:
    session = post(hub, keys[0], "initialize", **HELLO).headers["mcp-session-id"]
    answer = post(hub, keys[0], "tools/call", session, name="agent_key_issue", arguments={"agent_id": "reviewer"})
    assert answer.json()["result"]["structuredContent"]["error"]["code"] == "NOT_FOUND"
