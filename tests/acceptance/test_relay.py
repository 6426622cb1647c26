"""Agents on stdio whose processes are relays to a hub: real processes, and a hub that ends and comes back."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.subscriptions import ResourceUpdated

from mcp_bridge.relay import DIRECTORY, SOCKET
from tests.acceptance import hub as hubs
from tests.acceptance.hub import START_SECONDS, Hub, serving
from tests.acceptance.processes import HELLO, ROOT, Raw, calls_of, client, environment, is_relayed


def noticed(raw: Raw, name: str, arguments: Any, *, number: int) -> Any:
    """A tool's answer, behind the notices that there are more tools now."""
    params = {"name": name, "arguments": arguments}
    raw.write(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode())
    while "id" not in (answer := raw.read()):
        assert answer["method"].endswith("/list_changed")
    assert answer["id"] == number
    return answer["result"]["structuredContent"]


@pytest.fixture
def hubs_of(home: Path) -> Iterator[list[Hub]]:
    """The hubs that a test starts over its home, one after the other; the last is killed at the end."""
    started = [hubs.start(home)]
    yield started
    started[-1].process.kill()
    started[-1].process.wait()


def test_the_hub_makes_the_calls_of_a_process_that_starts_beside_it(home: Path, hub_beside: Hub) -> None:
    with Raw(home) as raw:
        raw.greet()
        assert is_relayed(raw, hub_beside)
    with Raw(home, NEXUS_STANDALONE="1") as raw:
        raw.greet()
        assert not is_relayed(raw, hub_beside)


@pytest.mark.sqlite
def test_only_its_user_reaches_the_socket(home: Path, hub_beside: Hub) -> None:
    assert (home / DIRECTORY).stat().st_mode & 0o777 == 0o700
    assert (home / DIRECTORY / SOCKET).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_new_hub_knows_what_the_former_one_knew(home: Path, hubs_of: list[Hub], project: str, number: int) -> None:
    """Its agent, its toolsets, its subscriptions and the topics that it joined, although nobody says them again."""
    with Raw(home) as raw, Raw(home, NEXUS_STANDALONE="1") as other:
        raw.greet()
        other.greet()
        assert noticed(raw, "toolset_enable", {"name": "topics"}, number=1)["ok"]
        raw.call("join", {"agent_id": "ann", "project_root": project}, number=2)
        uri = {"uri": "nexus://inbox/ann"}
        raw.write(json.dumps({"jsonrpc": "2.0", "id": 3, "method": "resources/subscribe", "params": uri}).encode())
        assert raw.read()["result"] == {}
        topic = raw.call("topic_create", {"name": "here"}, number=4)["topic_id"]
        raw.call("topic_join", {"agent_name": "ann", "topic_id": topic}, number=5)
        hubs_of[-1].stop(number)
        hubs_of.append(hubs.start(home))
        sent = {"topic_id": topic, "outbox": [{"content_markdown": "hello"}], "wait_seconds": 0}
        assert noticed(raw, "sync", sent, number=6)["sent"], "it is the same peer"
        assert raw.call("inbox_count", {}, number=7)["ok"], "it is the same agent"
        letter = {"project_root": project, "from_agent_id": "bob", "subject": "s", "body": "b"}
        other.call("message_create", {**letter, "target": {"strategy": "direct", "agent_id": "ann"}})
        assert raw.read()["params"] == uri
        assert is_relayed(raw, hubs_of[-1])


async def test_a_client_of_the_sdk_does_not_notice_that_the_hub_was_killed(
    home: Path, hubs_of: list[Hub], project: str
) -> None:
    """A stream of notices and a wait go on; what was answered is there."""
    async with client(home) as reader, client(home, NEXUS_STANDALONE="1") as writer:
        await reader.call_tool("agent_register", {"agent_id": "ann"})
        async with reader.listen(resource_subscriptions=["nexus://inbox/ann"]) as mail:
            waiting = asyncio.create_task(
                reader.call_tool(
                    "event_wait",
                    {"project_root": project, "agent_id": "ann", "stream": "workspace", "timeout_seconds": 30},
                )
            )
            await asyncio.to_thread(_parked, hubs_of[-1], 2)
            await asyncio.to_thread(hubs_of[-1].stop, signal.SIGKILL)
            hubs_of.append(await asyncio.to_thread(hubs.start, home))
            await asyncio.to_thread(_parked, hubs_of[-1], 2)
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
            assert (await waiting).structured_content["data"]["events"]


def test_no_write_runs_twice_and_none_is_lost(home: Path, hubs_of: list[Hub], project: str) -> None:
    """Four agents send to each other, and hand work to themselves and do it, while their hub is killed: each call waits
    for the next hub, and none of them is answered with an error."""
    team = ("a", "b", "c", "d")
    sent: list[str] = []
    acknowledged: list[str] = []
    completed: list[str] = []
    over = threading.Event()

    def work(name: str, other: str) -> None:
        numbers = itertools.count(1)
        with Raw(home, program=ROOT / "tests" / "mcp_bridge" / "patience.py", AWAY_SECONDS="600") as raw:
            raw.greet()

            def call(verb: str, **arguments: Any) -> Any:
                answer = raw.call(verb, arguments, number=next(numbers))
                assert answer["ok"], answer
                return answer["data"]

            while not over.is_set():
                to = {"project_root": project, "from_agent_id": name}
                letter = {"subject": "s", "body": "b", "target": {"strategy": "direct", "agent_id": other}}
                sent.append(call("message_create", **to, **letter)["message_id"])
                mine = {"visibility": "public", "payload": {}, "target": {"strategy": "direct", "agent_id": name}}
                handoff = call("handoff_create", **to, **mine)["handoff_id"]
                of = {"project_root": project, "agent_id": name, "handoff_id": handoff}
                call("handoff_claim", **of)
                call("handoff_complete", **of, result={})
                completed.append(handoff)
                ids = [message["message_id"] for message in call("inbox_pull", agent_id=name)["messages"]]
                if ids:
                    call("inbox_ack", agent_id=name, message_ids=ids)
                acknowledged.extend(ids)

    for name in team:
        hubs_of[-1].call("agent_register", agent_id=name)
    with ThreadPoolExecutor(len(team)) as pool:
        agents = [pool.submit(work, name, other) for name, other in zip(team, team[1:] + team[:1], strict=True)]
        try:
            for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
                reached = len(completed) + 12
                while len(completed) < reached and not any(agent.done() for agent in agents):
                    over.wait(0.01)
                hubs_of[-1].stop(number)
                hubs_of.append(hubs.start(home))
        finally:
            over.set()
        for agent in agents:
            agent.result()
    for name in team:
        while page := hubs_of[-1].call("inbox_pull", agent_id=name, limit=200)["messages"]:
            ids = [message["message_id"] for message in page]
            hubs_of[-1].call("inbox_ack", agent_id=name, message_ids=ids)
            acknowledged += ids
    mail = Counter(acknowledged)
    assert {message: mail[message] for message in sent} == dict.fromkeys(sent, 1)
    seen: list[Any] = []
    at = {"project_root": project, "agent_id": "a", "stream": "handoff", "limit": 200}
    while page := hubs_of[-1].call("event_get", **at, cursor=seen[-1]["event_id"] if seen else 0)["events"]:
        seen += page
    verbs = ("handoff.created", "handoff.claimed", "handoff.completed")
    told = Counter((event["type"], event["payload"]["handoff_id"]) for event in seen if event["type"] in verbs)
    assert told == {(verb, handoff): 1 for verb in verbs for handoff in completed}


def test_a_hub_that_can_make_no_socket_serves_and_agents_serve_themselves(home: Path) -> None:
    (home / DIRECTORY).touch()  # where its directory would be
    with serving(home) as hub, Raw(home) as raw:
        raw.greet()
        assert not is_relayed(raw, hub)
        assert hub.call("nexus_info")
    assert any("Agents on stdio serve themselves: there is no socket in" in said for said in hub.lines)


def test_the_key_and_the_toolsets_of_a_process_are_its_connections_alone(home: Path, hub_beside: Hub) -> None:
    key = hub_beside.key("ann")
    with Raw(home, NEXUS_API_KEY=key) as ann, Raw(home, "--toolsets", "coordination,topics") as other:
        ann.greet()
        other.greet()
        assert ann.call("agent_whoami", {})["data"]["agent_id"] == "ann"
        assert ann.call("inbox_pull", {"agent_id": "bob"})["error"]["code"] == "NOT_OWNER"
        assert other.call("inbox_pull", {"agent_id": "bob"})["ok"]
        assert "topics" in other.call("topic_list", {})
        assert ann.call("topic_list", {})["error"]["code"] == "NOT_FOUND"
        assert is_relayed(ann, hub_beside) and is_relayed(other, hub_beside)
    with Raw(home, NEXUS_AGENT_ID="cleo") as cleo:
        cleo.greet()
        assert cleo.call("join", {"project_root": str(home)})["data"]["agent_id"] == "cleo"


def test_a_relative_path_begins_where_the_process_was_started(home: Path, hub_beside: Hub, project: str) -> None:
    resolve = {"name": "workspace_resolve", "arguments": {"project_root": "."}}
    asked = [HELLO, {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": resolve}]
    with subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "runmcp"], cwd=project, env=environment(home), stdin=-1, stdout=-1
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in asked))
        process.stdin.flush()
        process.stdout.readline()
        data = json.loads(process.stdout.readline())["result"]["structuredContent"]["data"]
        process.stdin.close()
    assert data["root_realpath"] == os.path.realpath(project)
    assert calls_of(hub_beside, "workspace_resolve") == 1


def _parked(hub: Hub, count: int) -> None:
    while hub.parked() < count:
        pass
