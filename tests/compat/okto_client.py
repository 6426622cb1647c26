"""What the page of okto-nexus tells an agent to do first, and a piece of work: run it with the Python that has the
package, whose MCP client it is.

`okto_client.py URL KEY PROJECT VERSION` prints every answer, as JSON.
"""

# mypy: ignore-errors
# It runs with the first series of the SDK, which is not installed here.

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def play(url: str, key: str, project: str, newer: bool) -> dict[str, Any]:
    """Do the first turn, then take and finish a handoff, as the documentation of the version writes the calls."""
    http = httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60)
    said: dict[str, Any] = {}

    async with (
        http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as mcp,
    ):
        await mcp.initialize()

        async def call(tool: str, **arguments: Any) -> Any:
            answer = await mcp.call_tool(tool, arguments)
            envelope = json.loads(answer.content[0].text)  # type: ignore[union-attr]
            said[tool] = envelope
            assert envelope["ok"], (tool, arguments, envelope)
            return envelope["data"]

        me = (await call("agent_whoami"))["agent_id"]
        place = await call("workspace_resolve", project_root=project)
        session = await call("session_open", agent_id=me, workspace_id=place["workspace_id"])
        trusted = {"session_id": session["session_id"], "session_secret": session["session_secret"]}
        await call("inbox_count", agent_id=me)
        anchor = await call("event_cursor", project_root=project, agent_id=me, stream="workspace")
        where = {"workspace_id": place["workspace_id"]} if newer else {"project_root": project}
        brief = {"profile": "summary"} if newer else {}
        await call("inbox_peek", agent_id=me, include_bodies=True, **brief)
        pulled = await call("inbox_pull", agent_id=me, **trusted, **brief)
        await call("inbox_ack", agent_id=me, message_ids=[each["message_id"] for each in pulled["messages"]], **trusted)
        await call("inbox_history", agent_id=me, **brief)
        await call("workspace_list", include_paths=True)
        await call("agent_list")
        message = {"subject": "Here", "body": "I am back.", "target": {"strategy": "direct", "agent_id": "ann"}}
        secret = {"from_session_id": trusted["session_id"], "session_secret": trusted["session_secret"]}
        await call("message_create", from_agent_id=me, **message, **secret, **where)
        cursor = {"cursor": anchor["next_cursor"]} if "next_cursor" in anchor else {}
        await call(
            "event_wait", project_root=project, agent_id=me, stream="workspace", timeout_seconds=5, **cursor, **brief
        )
        offers = await call("handoff_list_available", agent_id=me, **where)
        first = {"handoff_id": offers["handoffs"][0]["handoff_id"], "agent_id": me, **trusted, **where}
        claimed = await call("handoff_claim", **first)
        fenced = {"claim_epoch": claimed["claim_epoch"]} if newer else {}
        await call("handoff_complete", result="Done here.", **first, **fenced)
        await call("handoff_get", handoff_id=first["handoff_id"], agent_id=me, **where)
        await call("shared_md_render", workspace_id=place["workspace_id"], **({"agent_id": me} if newer else {}))
        await call("session_heartbeat", session_id=trusted["session_id"])
        await call("session_close", session_id=trusted["session_id"])
    return said


if __name__ == "__main__":
    url, key, project, version = sys.argv[1:]
    print(json.dumps(asyncio.run(play(url, key, project, newer=version != "0.0.1"))))
