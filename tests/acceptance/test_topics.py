"""Topics over real transports: clients of Agent Bus on stdio, processes that write and follow at once, HTTP."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
from mcp.client.client import Client

from tests import warm
from tests.acceptance.hub import START_SECONDS, Hub
from tests.acceptance.processes import Raw, client, environment

TOOLS = {
    *("ping", "topic_create", "topic_list", "topic_resolve", "topic_close", "topic_join", "topic_presence"),
    *("cursor_reset", "messages_search", "sync"),
}


def agent(home: Path) -> Client:
    """A client as one is configured for Agent Bus, with our command; enter it to connect."""
    return client(home, "--toolsets", "topics")


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.structured_content
    data: dict[str, Any] = result.structured_content
    return data


async def test_a_client_of_agent_bus_does_its_work_and_comes_back_after_a_kill(home: Path) -> None:
    async with agent(home) as author:
        assert {tool.name for tool in (await author.list_tools()).tools} - {"toolset_enable"} == TOOLS
        assert (await call(author, "ping"))["spec_version"] == "v6.3"
        topic = (await call(author, "topic_create", name="cache-review"))["topic_id"]
        await call(author, "topic_join", agent_name="red-squirrel", name="cache-review")
        with Raw(home, "--toolsets", "topics") as reviewer:
            reviewer.greet()
            token = reviewer.call("topic_join", {"agent_name": "blue-heron", "topic_id": topic})["reclaim_token"]
            question = {"content_markdown": "Ready for review?", "message_type": "question"}
            asked = await call(author, "sync", topic_id=topic, outbox=[question], wait_seconds=0)
            got = reviewer.call("sync", {"topic_id": topic, "wait_seconds": 20})
            assert got["received"] == [asked["sent"][0]["message"]]
            answer = {
                "content_markdown": "One change, please.",
                "message_type": "answer",
                "reply_to": got["received"][0]["message_id"],
                "client_message_id": "review-1",
            }
            waiting = asyncio.create_task(call(author, "sync", topic_id=topic, wait_seconds=20))
            reviewer.call("sync", {"topic_id": topic, "outbox": [answer], "wait_seconds": 0})
            (heard,) = (await waiting)["received"]
            assert (heard["reply_to"], heard["sender"]) == (answer["reply_to"], "blue-heron")
            reviewer.process.send_signal(signal.SIGKILL)
            reviewer.process.wait(START_SECONDS)
        await call(author, "sync", topic_id=topic, outbox=[{"content_markdown": "Changed."}], wait_seconds=0)
        with Raw(home, "--toolsets", "topics") as reviewer:
            reviewer.greet()
            lost = reviewer.call("sync", {"topic_id": topic, "wait_seconds": 0})
            assert lost["error"]["code"] == "AGENT_NOT_JOINED"
            theirs = reviewer.call("topic_join", {"agent_name": "blue-heron", "topic_id": topic})
            assert theirs["error"]["code"] == "AGENT_NAME_IN_USE"
            again = {"agent_name": "blue-heron", "topic_id": topic, "reclaim_token": token}
            assert reviewer.call("topic_join", again)["reclaim_token"] == token
            synced = reviewer.call("sync", {"topic_id": topic, "outbox": [answer], "wait_seconds": 0})
            assert [each["duplicate"] for each in synced["sent"]] == [True], "sent before the kill"
            assert [message["content_markdown"] for message in synced["received"]] == ["Changed."]
            present = reviewer.call("topic_presence", {"topic_id": topic})
            assert {peer["agent_name"] for peer in present["peers"]} == {"red-squirrel", "blue-heron"}
        assert (await call(author, "messages_search", query="chang", mode="fts"))["count"] == 2
        closed = await author.call_tool("topic_close", {"topic_id": topic, "reason": "merged"})
        assert "merged" in closed.content[0].text  # type: ignore[union-attr]


def test_what_a_stdio_client_cannot_have_meant_is_answered_in_the_form_of_topics(home: Path) -> None:
    with Raw(home, "--toolsets", "topics") as raw:
        raw.greet()
        raw.write(
            b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"ping","arguments":{"a":' + b"[" * 300
        )
        answer = raw.read()
        assert answer["result"]["structuredContent"]["error"]["code"] == "INVALID_ARGUMENT"
        assert raw.call("ping", {})["ok"]


async def test_a_session_over_http_is_a_peer_and_a_key_over_rest_is_one(hub_beside: Hub) -> None:
    key = hub_beside.key("builder")

    def rest(tool: str, /, **arguments: Any) -> httpx.Response:
        url = f"{hub_beside.url}/api/v1/topics/operations/{tool}"
        return httpx.post(url, json=arguments, headers={"x-api-key": key})

    topic = rest("topic_create", name="cache").json()["topic_id"]
    token = rest("topic_join", topic_id=topic, agent_name="over-rest").json()["reclaim_token"]
    async with Client(f"{hub_beside.url}/mcp/topics?api_key={key}", mode="legacy") as session:
        assert {tool.name for tool in (await session.list_tools()).tools} - {"toolset_enable"} == TOOLS
        alone = await session.call_tool("sync", {"topic_id": topic, "wait_seconds": 0})
        assert alone.structured_content["error"]["code"] == "AGENT_NOT_JOINED", "the session has a name of its own"
        await call(session, "topic_join", topic_id=topic, agent_name="over-mcp")
        waiting = asyncio.create_task(call(session, "sync", topic_id=topic, wait_seconds=20))
        said = await asyncio.to_thread(
            rest, "sync", topic_id=topic, outbox=[{"content_markdown": "hello"}], wait_seconds=0
        )
        assert said.status_code == 200 and said.json()["sent"][0]["message"]["sender"] == "over-rest"
        assert [message["content_markdown"] for message in (await waiting)["received"]] == ["hello"]
    for name, arguments, status in (
        ("sync", {"topic_id": "nowhere"}, 404),
        ("sync", {"topic_id": topic, "max_items": 21}, 400),
        ("topic_join", {"topic_id": topic, "agent_name": "over-mcp"}, 409),
        ("cursor_reset", {"topic_id": topic, "last_seq": 9}, 400),
    ):
        answer = rest(name, **arguments)
        assert answer.status_code == status and set(answer.json()) == {"error"}
    assert rest("topic_join", topic_id=topic, agent_name="over-rest", reclaim_token=token).status_code == 200


def test_a_client_that_reads_no_answers_any_more_is_served_no_longer_and_loses_nothing(home: Path) -> None:
    with Raw(home, "--toolsets", "topics") as ann:
        ann.greet()
        topic = ann.call("topic_create", {"name": "cache"})["topic_id"]
        ann.call("topic_join", {"topic_id": topic, "agent_name": "ann"})
        with Raw(home, "--toolsets", "topics") as bob:
            bob.greet()
            token = bob.call("topic_join", {"topic_id": topic, "agent_name": "bob"})["reclaim_token"]
            polls = {"name": "sync", "arguments": {"topic_id": topic, "wait_seconds": 600}}
            bob.write(json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": polls}).encode())
            assert bob.process.stdout is not None
            bob.process.stdout.close()
            assert bob.process.wait(START_SECONDS) == 0
        ann.call("sync", {"topic_id": topic, "outbox": [{"content_markdown": "hello"}], "wait_seconds": 0})
        ann.call("topic_join", {"topic_id": topic, "agent_name": "bob", "reclaim_token": token})
        synced = ann.call("sync", {"topic_id": topic, "wait_seconds": 0})
        assert [message["content_markdown"] for message in synced["received"]] == ["hello"]


def test_a_person_watches_a_topic_from_a_shell(home: Path) -> None:
    with Raw(home, "--toolsets", "topics") as raw:
        raw.greet()
        topic = raw.call("topic_create", {"name": "cache"})["topic_id"]
        raw.call("topic_join", {"topic_id": topic, "agent_name": "ann"})

        def say(text: str) -> None:
            raw.call("sync", {"topic_id": topic, "outbox": [{"content_markdown": text}], "wait_seconds": 0})

        say("long ago")
        say("before")
        command = ["topics", "watch", "cache", "--last", "1", "--json"]
        watching = warm.Process(command, environment(home), text=True, stdout=subprocess.PIPE)
        try:
            assert watching.stdout is not None
            assert json.loads(watching.stdout.readline())["content_markdown"] == "before"
            say("now")
            assert json.loads(watching.stdout.readline())["content_markdown"] == "now"
            watching.send_signal(signal.SIGINT)
            assert watching.wait(START_SECONDS) == 130
        finally:
            watching.kill()
