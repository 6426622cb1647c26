"""The contract's example flow as a program of its own, so that any version of the Python SDK can play it.

    python example_flow.py stdio PROJECT COMMAND [ARGUMENT ...]
    python example_flow.py http PROJECT URL BUILDER_KEY REVIEWER_KEY

It imports nothing but the SDK, and prints `flow complete` at its end.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import ClientSession


@asynccontextmanager
async def clients(how: str, place: list[str]) -> AsyncIterator[tuple[ClientSession, ClientSession]]:
    """A session for the builder and one for the reviewer."""
    if how == "stdio":
        from mcp import StdioServerParameters
        from mcp.client.stdio import stdio_client

        process = StdioServerParameters(command=place[0], args=place[1:])
        streams: tuple[Any, ...] = stdio_client(process), stdio_client(process)
    else:
        streams = tuple(_http(place[0], key) for key in place[1:])
    async with (
        streams[0] as one,
        streams[1] as two,
        ClientSession(one[0], one[1]) as builder,
        ClientSession(two[0], two[1]) as reviewer,
    ):
        for session in (builder, reviewer):
            await session.initialize()
        yield builder, reviewer


def _http(url: str, key: str) -> Any:
    headers = {"Authorization": f"Bearer {key}"}
    try:
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        return streamable_http_client(url, http_client=create_mcp_http_client(headers=headers))
    except ImportError:
        from mcp.client.streamable_http import streamablehttp_client  # type: ignore[attr-defined]  # 1.x

        return streamablehttp_client(url, headers=headers)


async def call(session: ClientSession, name: str, **arguments: Any) -> Any:
    """A tool's data; the flow ends at the first failure."""
    result = await session.call_tool(name, arguments)
    envelope = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
    assert envelope and envelope["ok"], (name, result)
    return envelope["data"]


async def flow(builder: ClientSession, reviewer: ClientSession, project: str) -> None:
    assert len((await builder.list_tools()).tools) == 42  # and toolset_enable
    workspace = (await call(builder, "workspace_resolve", project_root=project))["workspace_id"]
    await call(builder, "agent_register", agent_id="builder", role="builder", capabilities=["py"])
    await call(reviewer, "agent_register", agent_id="reviewer")
    opened = await call(builder, "session_open", agent_id="builder", workspace_id=workspace)
    assert opened["session_secret"]
    beat = await call(builder, "session_heartbeat", session_id=opened["session_id"])
    assert beat["status"] == "active"

    to_reviewer = {"strategy": "direct", "agent_id": "reviewer"}
    sent = await call(
        builder,
        "message_create",
        project_root=project,
        from_agent_id="builder",
        subject="Ready",
        body='{"looks": "like JSON"}',
        target=to_reviewer,
    )
    assert sent["recipients"] == ["reviewer"] and sent["delivered_count"] == 1
    (message,) = (await call(reviewer, "inbox_pull", agent_id="reviewer"))["messages"]
    assert message["body"] == '{"looks": "like JSON"}'
    acked = await call(reviewer, "inbox_ack", agent_id="reviewer", message_ids=message["message_id"])
    assert acked == {"acknowledged": 1}
    channels = (await call(builder, "channel_list", project_root=project))["channels"]
    assert [channel["name"] for channel in channels] == ["general"]
    seen = await call(reviewer, "event_wait", project_root=project, agent_id="reviewer", stream="workspace", cursor=0)
    assert "message.created" in [event["type"] for event in seen["events"]]

    made = await call(
        builder,
        "handoff_create",
        project_root=project,
        from_agent_id="builder",
        target=to_reviewer,
        visibility="public",
        payload={"do": "review"},
    )
    offered = await call(reviewer, "handoff_list_available", project_root=project, agent_id="reviewer")
    assert [handoff["handoff_id"] for handoff in offered["handoffs"]] == [made["handoff_id"]]
    of = {"project_root": project, "handoff_id": made["handoff_id"], "agent_id": "reviewer"}
    assert (await call(reviewer, "handoff_claim", **of))["status"] == "CLAIMED"
    assert (await call(reviewer, "handoff_complete", **of, result="fine"))["status"] == "COMPLETED"
    log = await call(builder, "event_get", project_root=project, agent_id="builder", stream="handoff")
    assert [event["type"] for event in log["events"]] == ["handoff.created", "handoff.claimed", "handoff.completed"]

    inline = await call(builder, "artifact_put", project_root=project, artifact_type="text", content="hello")
    path = await call(builder, "artifact_put", project_root=project, artifact_type="markdown", path="notes.md")
    assert (inline["stored"], path["stored"]) == ("inline", "path")
    got = await call(reviewer, "artifact_get", project_root=project, artifact_id=inline["artifact_id"])
    assert got["content"] == "hello"
    rendered = await call(builder, "shared_md_render", workspace_id=workspace)
    assert rendered["sections_rendered"] == 4
    await call(builder, "session_close", session_id=opened["session_id"])


async def main(how: str, project: str, *place: str) -> None:
    async with clients(how, list(place)) as (builder, reviewer):
        await flow(builder, reviewer, project)
    print("flow complete")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
