"""One member of the team: a real MCP client with its own process or connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp.client.client import Client

Data = dict[str, Any]


class DemoFailure(Exception):
    """An unexpected answer, with which the team cannot continue."""


@dataclass
class Agent:
    """An agent in its project, with the credentials of its session."""

    agent_id: str
    project_root: str
    client: Client
    credentials: dict[str, str] = field(default_factory=dict)
    tell: Callable[[str, str], None] = lambda agent_id, what: None  # for the demo's output: what no viewer may see

    async def attempt(self, tool: str, **arguments: Any) -> Data:
        """Call a tool; return the envelope, also of an error."""
        answer = await self.client.call_tool(tool, arguments)
        envelope: Data = answer.structured_content
        return envelope

    async def call(self, tool: str, **arguments: Any) -> Data:
        """Call a tool that must succeed; return its data."""
        envelope = await self.attempt(tool, **arguments)
        if not envelope["ok"]:
            raise DemoFailure(f"{self.agent_id}: {tool} answered {envelope['error']}")
        data: Data = envelope["data"]
        return data

    async def send(self, subject: str, body: str, to: str | None = None) -> Data:
        """Send a message to one agent, or to everybody present."""
        target = {"target": {"strategy": "direct", "agent_id": to}} if to else {}
        return await self.call(
            "message_create",
            project_root=self.project_root,
            from_agent_id=self.agent_id,
            subject=subject,
            body=body,
            **target,
        )

    async def receive(self) -> list[Data]:
        """Pull the mail and acknowledge it."""
        messages: list[Data] = (await self.call("inbox_pull", agent_id=self.agent_id, **self.credentials))["messages"]
        if messages:
            handled = [message["message_id"] for message in messages]
            await self.call("inbox_ack", agent_id=self.agent_id, message_ids=handled, **self.credentials)
        for message in messages:
            if (message["target"] or {}).get("strategy") == "direct":
                self.tell(self.agent_id, f"reads from {message['from_agent_id']}: {message['subject']}")
        return messages


@asynccontextmanager
async def joined(
    transport: Any, agent_id: str, project_root: str, role: str, capabilities: list[str]
) -> AsyncIterator[Agent]:
    """Connect and make the first calls: workspace, registration, session. Close the session at the end."""
    async with Client(transport) as client:
        agent = Agent(agent_id, project_root, client)
        workspace = await agent.call("workspace_resolve", project_root=project_root)
        await agent.call("agent_register", agent_id=agent_id, role=role, capabilities=capabilities)
        session = await agent.call("session_open", agent_id=agent_id, workspace_id=workspace["workspace_id"])
        agent.credentials = {name: session[name] for name in ("session_id", "session_secret")}
        yield agent
        await agent.call("session_close", session_id=session["session_id"])
