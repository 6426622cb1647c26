"""Resources, prompts and subscriptions as a client meets them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any

import pytest
from django.db import connection
from mcp.client.client import Client
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import ResourceUpdatedNotification

from coordination.services.agents import hash_secret
from coordination.toolset import arun
from mcp_bridge import presence, subscriptions
from mcp_bridge.server import build_server
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import check_credential
from nexus.core.waiting import WRITERS, in_thread
from tests.acceptance.hub import START_SECONDS
from tests.mcp_bridge.conftest import Connect


async def send(client: Any, project: str, to: str) -> str:
    letter = {"project_root": project, "from_agent_id": "s", "subject": "s", "body": "b"}
    answer = await client.call_tool("message_create", {**letter, "target": {"strategy": "direct", "agent_id": to}})
    assert answer.structured_content["ok"], answer
    return str(answer.structured_content["data"]["message_id"])


async def test_it_offers_the_reference_pages(connect: Connect) -> None:
    async with connect() as client:
        pages = (await client.list_resources()).resources
        assert "nexus://reference/delivery" in {str(page.uri) for page in pages}
        for resource in pages:
            contents = (await client.read_resource(resource.uri)).contents[0]
            assert contents.mime_type == "text/markdown" and contents.text.startswith("# ")  # type: ignore[union-attr]


async def test_it_shows_an_inbox_without_taking_anything_from_it(connect: Connect, project: str) -> None:
    async with connect() as client:
        await client.call_tool("agent_register", {"agent_id": "r"})
        await send(client, project, "r")
        for _ in range(2):
            inbox = json.loads((await client.read_resource("nexus://inbox/r")).contents[0].text)  # type: ignore[union-attr]
            assert inbox["unread"] == 1 and inbox["messages"][0]["body"] == "b"


async def test_it_refuses_an_unknown_resource_and_another_agents_inbox(connect: Connect) -> None:
    async with connect("ann") as client:
        with pytest.raises(MCPError, match="No such resource"):
            await client.read_resource("nexus://reference/nothing")
        with pytest.raises(MCPError, match="acts as 'ann' only"):
            await client.read_resource("nexus://inbox/bob")
        with pytest.raises(MCPError, match="inbox of 'ann' only"):
            async with client.listen(resource_subscriptions=["nexus://inbox/bob"]):
                pass


async def test_it_gives_the_first_turn_as_a_prompt(connect: Connect) -> None:
    async with connect() as client:
        (prompt,) = (await client.list_prompts()).prompts
        filled = await client.get_prompt(prompt.name, {"project_root": "/p", "agent_id": "ann"})
        assert "'ann'" in filled.messages[0].content.text  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="needs agent_id"):
            await client.get_prompt(prompt.name, {"project_root": "/p"})


async def test_it_holds_the_first_turn_in_its_instructions(connect: Connect) -> None:
    async with connect() as client:
        for step in ("join", "inbox_pull", "inbox_ack", "handoff_create"):
            assert step in (client.instructions or "")


async def test_it_tells_a_listener_of_its_mail_and_of_no_other(connect: Connect, project: str) -> None:
    async with connect() as client, connect("a b") as bound:
        for agent_id in ("a b", "bob"):
            await client.call_tool("agent_register", {"agent_id": agent_id})
        async with bound.listen(resource_subscriptions=["nexus://inbox/a%20b"]) as mail:
            await send(client, project, "bob")
            await send(client, project, "a b")
            update = await asyncio.wait_for(anext(aiter(mail)), START_SECONDS)
        assert update == ResourceUpdated(uri="nexus://inbox/a%20b")


async def test_a_change_asks_after_the_keys_of_those_alone_who_listen_to_it(
    connect: Connect, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def noted(caller: Caller) -> None:
        asked.append(caller.agent_id)
        check_credential(caller)

    agents = [f"agent-{number}" for number in range(5)]
    server = build_server(lambda context: Caller("memory", agent_id=acting, connection=acting))
    async with connect() as client, Client(server) as bound, AsyncExitStack() as listening:
        for acting in agents:
            await client.call_tool("agent_register", {"agent_id": acting})
            mail = await listening.enter_async_context(bound.listen(resource_subscriptions=[f"nexus://inbox/{acting}"]))
        monkeypatch.setattr(subscriptions, "check_credential", noted)
        await send(client, project, acting)
        await asyncio.wait_for(anext(aiter(mail)), START_SECONDS)
    assert asked == [acting]


async def test_it_tells_of_the_notice_that_a_handoff_brings(connect: Connect, project: str) -> None:
    async with connect() as client:
        await client.call_tool("agent_register", {"agent_id": "ann"})
        async with client.listen(resource_subscriptions=["nexus://inbox/ann"]) as mail:
            offer = {"project_root": project, "from_agent_id": "s", "visibility": "public"}
            await client.call_tool("handoff_create", {**offer, "target": {"strategy": "direct", "agent_id": "ann"}})
            assert await asyncio.wait_for(anext(aiter(mail)), START_SECONDS) == ResourceUpdated(uri="nexus://inbox/ann")


async def test_it_lets_no_agents_subscriptions_crowd_out_anothers(
    committed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_AGENT", 2)
    acting = "ann"
    server = build_server(lambda context: Caller("memory", agent_id=acting, connection=acting))
    async with Client(server) as client, AsyncExitStack() as others:

        def listen() -> AbstractAsyncContextManager[Any]:
            return client.listen(resource_subscriptions=[f"nexus://inbox/{acting}"])

        await others.enter_async_context(listen())
        async with listen():
            with pytest.raises(MCPError, match="Too many subscriptions of 'ann'"):
                await others.enter_async_context(listen())
            acting = "bob"
            await others.enter_async_context(listen())
        acting = "ann"
        await others.enter_async_context(listen())  # where one has ended, another may begin
        monkeypatch.setattr(subscriptions, "MAX_HEARINGS", 5)  # three are open
        acting = "cid"
        with pytest.raises(MCPError, match="Too many subscriptions are open"):
            await others.enter_async_context(listen())
        operator = build_server(lambda context: Caller("memory", operator="ada"))
        async with Client(operator) as page:
            await others.enter_async_context(page.listen(resource_subscriptions=["nexus://inbox/ann"]))


@pytest.mark.parametrize("revoke", [("agent_delete", {}), ("agent_key_set_active", {"active": False})])
async def test_it_ends_a_stream_of_notices_whose_key_died(committed: None, project: str, revoke: Any) -> None:
    operator = Caller("test", operator="olga")
    key = (await arun(operator, "agent_create", {"agent_id": "ann"}))["data"]["api_key"]
    bound = Caller("memory", agent_id="ann", credential=hash_secret(key))
    letter = {"project_root": project, "from_agent_id": "s", "subject": "s", "body": "b"}
    async with Client(build_server(lambda context: bound)) as client:
        async with client.listen(resource_subscriptions=["nexus://inbox/ann"]) as events:
            name, arguments = revoke
            await arun(operator, name, {"agent_id": "ann", **arguments})
            if name == "agent_delete":  # with a new key; the old stream is not the new agent's
                await arun(operator, "agent_create", {"agent_id": "ann"})
            target = {"strategy": "direct", "agent_id": "ann"}
            assert (await arun(operator, "message_create", {**letter, "target": target}))["ok"]
            assert [event async for event in events] == []
        with pytest.raises(MCPError, match="deactivated"):
            async with client.listen(resource_subscriptions=["nexus://inbox/ann"]):
                pass


async def test_it_ends_a_stream_whose_client_reads_nothing(
    connect: Connect, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MOST_QUEUED", 0)
    target = {"strategy": "direct", "agent_id": "ann"}
    letter = {"project_root": project, "from_agent_id": "ann", "subject": "s", "body": "b", "target": target}
    uri = "nexus://inbox/ann"
    async with (
        asyncio.timeout(START_SECONDS),
        connect("ann") as client,
        client.listen(resource_subscriptions=[uri]) as to,
    ):
        for name, arguments in (("agent_register", {"agent_id": "ann"}), ("message_create", letter)):
            assert not (await client.call_tool(name, arguments)).is_error
        assert [event async for event in to] == []


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")  # clients of before have it alone
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_says_that_the_store_cannot_be_watched(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    uri = "nexus://inbox/ann"
    async with asyncio.timeout(START_SECONDS), connect(mode=mode) as client:
        with monkeypatch.context() as patch, pytest.raises(MCPError) as refusal:
            patch.setitem(connection.settings_dict, "NAME", "/nowhere/nexus.db")
            if mode == "legacy":
                await client.subscribe_resource(uri)
            else:
                async with client.listen(resource_subscriptions=[uri]):
                    pass
    assert refusal.value.error.data["code"] == "DB_ERROR"
    assert refusal.value.error.data["cause"] == "cannot_open"


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")  # clients of before have it alone
async def test_it_takes_the_same_subscription_once_however_often_it_comes_at_once(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "MOST_OF_AGENT", 1)
    async with asyncio.timeout(START_SECONDS), connect("ann", mode="legacy") as client:
        await asyncio.gather(*(client.subscribe_resource("nexus://inbox/ann") for _ in range(8)))
        await client.unsubscribe_resource("nexus://inbox/ann")
        await client.subscribe_resource("nexus://inbox/ann")  # which finds a place: nothing of the former is left


async def test_in_strict_trust_an_inbox_is_read_over_its_agents_connection_only(
    connect: Connect, configure: Callable[..., None]
) -> None:
    configure(trust_mode="strict")
    async with connect() as anybody, connect("ann") as ann:
        await anybody.call_tool("agent_register", {"agent_id": "ann"})
        with pytest.raises(MCPError, match="strict trust"):
            await anybody.read_resource("nexus://inbox/ann")
        assert (await ann.read_resource("nexus://inbox/ann")).contents


async def noticed(client: Client, message_id: str) -> dict[str, Any]:
    """The stage of a message to one recipient."""
    answer = await client.call_tool("message_receipts", {"message_id": message_id})
    (receipt,) = answer.structured_content["data"]["receipts"]
    stage: dict[str, Any] = receipt["stages"][1]
    assert stage["stage"] == "noticed"
    return stage


async def announced(client: Client, message_id: str) -> dict[str, Any]:
    """The same, once a push was recorded: it is sent first."""
    async with asyncio.timeout(START_SECONDS):
        while not (stage := await noticed(client, message_id))["reached"]:
            pass
    return stage


@pytest.mark.filterwarnings("ignore:resources/(un)?subscribe is removed")  # clients of before have it alone
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_push_to_the_agents_own_connection_is_evidence_that_it_noticed(
    connect: Connect, project: str, mode: str
) -> None:
    uri = "nexus://inbox/ann"
    async with connect() as lead, connect("ann", mode=mode) as ann:
        await lead.call_tool("agent_register", {"agent_id": "ann"})
        before = await send(lead, project, "ann")
        async with AsyncExitStack() as listening:
            if mode == "legacy":
                await ann.subscribe_resource(uri)
            else:
                await listening.enter_async_context(ann.listen(resource_subscriptions=[uri]))
            sent = [await send(lead, project, "ann") for _ in range(2)]
            for each in sent:
                stage = await announced(lead, each)
                assert stage["evidence"][0].startswith("push over MCP to memory")
        assert not (await noticed(lead, before))["reached"], "no push was about it"


async def test_a_push_to_others_is_no_evidence(connect: Connect, project: str) -> None:
    uri = "nexus://inbox/ann"
    async with connect() as lead, connect() as anybody:
        await lead.call_tool("agent_register", {"agent_id": "ann"})
        async with anybody.listen(resource_subscriptions=[uri]) as mail:
            sent = [await send(lead, project, "ann")]
            await asyncio.wait_for(anext(aiter(mail)), START_SECONDS)
            sent.append(await send(lead, project, "ann"))
            await asyncio.wait_for(anext(aiter(mail)), START_SECONDS)
        await in_thread(WRITERS, lambda: None)  # what the first push would have written is written
        assert not (await noticed(lead, sent[0]))["reached"]


async def test_an_agent_without_a_key_is_the_one_that_acts_on_its_connection(connect: Connect, project: str) -> None:
    caller = Caller("memory", connection="mem:1")
    async with connect() as lead, Client(build_server(lambda context: caller)) as ann:
        with presence.connected("mem:1"):
            await ann.call_tool("agent_register", {"agent_id": "ann"})
            async with ann.listen(resource_subscriptions=["nexus://inbox/ann"]):
                sent = await send(lead, project, "ann")
                assert (await announced(lead, sent))["evidence"] == ["push over MCP to mem:1"]


async def test_what_cannot_be_written_is_no_evidence(
    connect: Connect, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(session: Any, notification: Any, related_request_id: Any = None) -> None:
        if isinstance(notification, ResourceUpdatedNotification):
            failed.set()
            raise ConnectionError("the client has left")
        await sends(session, notification, related_request_id)

    failed, sends = asyncio.Event(), ServerSession.send_notification
    monkeypatch.setattr(ServerSession, "send_notification", fails)
    async with connect() as lead, connect("ann") as ann:
        await lead.call_tool("agent_register", {"agent_id": "ann"})
        with suppress(Exception):
            async with ann.listen(resource_subscriptions=["nexus://inbox/ann"]):
                sent = await send(lead, project, "ann")
                await asyncio.wait_for(failed.wait(), START_SECONDS)
        assert not (await noticed(lead, sent))["reached"]
