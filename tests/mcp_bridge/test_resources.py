"""Resources, prompts and subscriptions as a client meets them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated

from tests.mcp_bridge.conftest import Connect


async def send(client: Any, project: str, to: str) -> None:
    answer = await client.call_tool(
        "message_create",
        {
            "project_root": project,
            "from_agent_id": "s",
            "subject": "s",
            "body": "b",
            "target": {"strategy": "direct", "agent_id": to},
        },
    )
    assert answer.structured_content["ok"], answer


async def test_it_offers_the_reference_pages(connect: Connect) -> None:
    async with connect() as client:
        for resource in (await client.list_resources()).resources:
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


async def test_it_gives_the_first_turn_as_a_prompt(connect: Connect) -> None:
    async with connect() as client:
        (prompt,) = (await client.list_prompts()).prompts
        filled = await client.get_prompt(prompt.name, {"project_root": "/p", "agent_id": "ann"})
        assert "'ann'" in filled.messages[0].content.text  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="needs agent_id"):
            await client.get_prompt(prompt.name, {"project_root": "/p"})


async def test_it_holds_the_first_turn_in_its_instructions(connect: Connect) -> None:
    async with connect() as client:
        for step in ("workspace_resolve", "agent_register", "session_open", "inbox_pull", "inbox_ack"):
            assert step in (client.instructions or "")


async def test_it_tells_a_listener_of_its_mail_and_of_no_other(connect: Connect, project: str) -> None:
    async with connect() as client, connect("a b") as bound:
        for agent_id in ("a b", "bob"):
            await client.call_tool("agent_register", {"agent_id": agent_id})
        async with bound.listen(resource_subscriptions=["nexus://inbox/a%20b"]) as mail:
            await send(client, project, "bob")
            await send(client, project, "a b")
            update = await asyncio.wait_for(anext(aiter(mail)), 10)
        assert update == ResourceUpdated(uri="nexus://inbox/a%20b")


async def test_it_tells_of_the_notice_that_a_handoff_brings(connect: Connect, project: str) -> None:
    async with connect() as client:
        await client.call_tool("agent_register", {"agent_id": "ann"})
        async with client.listen(resource_subscriptions=["nexus://inbox/ann"]) as mail:
            await client.call_tool(
                "handoff_create",
                {
                    "project_root": project,
                    "from_agent_id": "s",
                    "target": {"strategy": "direct", "agent_id": "ann"},
                    "visibility": "public",
                },
            )
            assert await asyncio.wait_for(anext(aiter(mail)), 10) == ResourceUpdated(uri="nexus://inbox/ann")


async def test_it_refuses_to_subscribe_to_another_agents_inbox(connect: Connect) -> None:
    async with connect("ann") as client:
        with pytest.raises(MCPError, match="inbox of 'ann' only"):
            async with client.listen(resource_subscriptions=["nexus://inbox/bob"]):
                pass
