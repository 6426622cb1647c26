"""The demo's timeline misses nothing of what happens once it has begun."""

from __future__ import annotations

import asyncio

import pytest
from mcp.client.client import Client

from coordination.toolset import arun
from mcp_bridge.server import build_server
from nexus_site.demo.team import Agent
from nexus_site.demo.timeline import Timeline
from tests.conftest import LOCAL
from tests.core.waiting import LONG


@pytest.mark.usefixtures("committed")
async def test_it_sees_what_happens_before_it_is_followed(project: str) -> None:
    told: list[str] = []
    async with Client(build_server(lambda context: LOCAL)) as client:
        timeline = Timeline(Agent("viewer", project, client), lambda actor, what: told.append(what))
        await timeline.begin()
        offered = {"from_agent_id": "ana", "target": {"strategy": "broadcast"}, "visibility": "public"}
        handoff = (await arun(LOCAL, "handoff_create", {"project_root": project, **offered}))["data"]["handoff_id"]
        await arun(LOCAL, "handoff_claim", {"project_root": project, "handoff_id": handoff, "agent_id": "bob"})
        following = asyncio.create_task(timeline.follow())
        async with asyncio.timeout(LONG):
            while not timeline.claims:
                await asyncio.sleep(0.01)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert timeline.claims == {handoff: ["bob"]}
