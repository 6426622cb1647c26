"""The agents of the demo (a planner, two workers that race, a reviewer), their connections and their store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from coordination.toolset import run
from nexus.core.config import CoreSettings
from nexus.core.operations.caller import Caller, process_connection

SKILL = "build"
PLANNER, REVIEWER, WORKERS = "demo-planner", "demo-reviewer", ("demo-worker-1", "demo-worker-2")
PARTS = ("parser", "storage", "search", "importer", "exporter", "scheduler", "cache", "report")
OPERATOR = Caller(transport="demo", operator="demo", connection=process_connection("demo"))


@dataclass
class Score:
    """The team's own record, which is compared with the store."""

    messages: list[str] = field(default_factory=list)  # ids of messages that were acknowledged to their sender
    handoffs: list[str] = field(default_factory=list)
    wins: list[tuple[str, str]] = field(default_factory=list)  # (handoff_id, winner), as in the winner's answer
    lost_races: int = 0
    finished: asyncio.Event = field(default_factory=asyncio.Event)


async def plan(planner: Agent, score: Score, rounds: int, pause: float) -> None:
    """Announce the plan, hand out the parts, and collect every outcome."""
    sent = await planner.send("Plan", "We build one part after another; take what is offered to your skill.")
    score.messages.append(sent["message_id"])
    for number in range(rounds):
        part = PARTS[number % len(PARTS)]
        made = await planner.call(
            "handoff_create",
            project_root=planner.project_root,
            from_agent_id=planner.agent_id,
            target={"strategy": "capability", "capability": SKILL},
            visibility="public",
            payload={"part": part, "number": number},
        )
        score.handoffs.append(made["handoff_id"])
        await asyncio.sleep(pause)
    outcomes = 0
    while outcomes < rounds:
        outcomes += sum("was completed" in message["subject"] for message in await planner.receive())
        await asyncio.sleep(pause / 2)
    sent = await planner.send("Done", f"All {rounds} parts are in. Thank you.")
    score.messages.append(sent["message_id"])
    score.finished.set()


async def work(worker: Agent, score: Score, pause: float) -> None:
    """Race for the offered handoffs; the winner builds the part, asks for a review and completes it."""
    while not score.finished.is_set():
        offered = await worker.call(
            "handoff_list_available",
            project_root=worker.project_root,
            agent_id=worker.agent_id,
            limit=1,
            timeout_seconds=1,
        )
        for handoff in offered["handoffs"]:
            await _try_to_build(worker, score, handoff["handoff_id"], pause)
        await worker.receive()


async def _try_to_build(worker: Agent, score: Score, handoff_id: str, pause: float) -> None:
    handoff = {"project_root": worker.project_root, "handoff_id": handoff_id, "agent_id": worker.agent_id}
    claim = await worker.attempt("handoff_claim", **handoff, **worker.credentials)
    if not claim["ok"]:
        if claim["error"]["code"] != "HANDOFF_ALREADY_CLAIMED":
            raise DemoFailure(f"{worker.agent_id}: handoff_claim answered {claim['error']}")
        score.lost_races += 1
        return
    score.wins.append((handoff_id, worker.agent_id))
    await asyncio.sleep(pause * random.uniform(1, 3))  # noqa: S311  # the work
    artifact = await worker.call(
        "artifact_put",
        project_root=worker.project_root,
        artifact_type="markdown",
        name="notes",
        content=f"# Built\n\n{claim['data']['payload']}",
    )
    sent = await worker.send("Please review", f"See artifact {artifact['artifact_id']}.", to=REVIEWER)
    score.messages.append(sent["message_id"])
    await worker.call("handoff_complete", **handoff, **worker.credentials, result={"artifact": artifact["artifact_id"]})


async def review(reviewer: Agent, score: Score) -> None:
    """Wait for mail by subscription, without polling, and answer each request."""
    async with reviewer.client.listen(resource_subscriptions=[f"nexus://inbox/{reviewer.agent_id}"]) as mail:
        async for _ in mail:
            for message in await reviewer.receive():
                if message["subject"] == "Please review":
                    sent = await reviewer.send("Reviewed", "Looks good.", to=message["from_agent_id"])
                    score.messages.append(sent["message_id"])


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
    report: Callable[[str, str], None] = lambda agent_id, what: None  # for the demo's output: what no viewer may see

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
                self.report(self.agent_id, f"reads from {message['from_agent_id']}: {message['subject']}")
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


def own_store(home: Path) -> CoreSettings:
    """Return the settings of a throwaway home: the store is a file in it, never the user's own."""
    return CoreSettings.current().replaced(home=home, db_path=None, database_url=None)


def transport(url: str, key: str) -> Any:
    """Return an agent's connection to a hub."""
    headers = {"Authorization": f"Bearer {key}"}
    return streamable_http_client(f"{url}/mcp", http_client=create_mcp_http_client(headers=headers))


def links(url: str, *pages: str) -> str:
    """Return the addresses of a hub's pages, a line each."""
    return "\n".join(f"  {page:<9} {url}/admin/{page.lower()}/" for page in pages)


def leave(agents: Iterable[str], project_root: str) -> str:
    """End the unfinished work and delete the team's agents; return what stays as history."""
    live = run(OPERATOR, "handoff_list", {"project_root": project_root})
    for row in live["data"]["handoffs"] if live["ok"] else []:
        ended = {"handoff_id": row["handoff_id"], "reason": "The demo ended."}
        if row["claimed_by"] is None:
            run(OPERATOR, "handoff_withdraw", ended)
        else:
            run(OPERATOR, "handoff_reject", {**ended, "project_root": project_root, "agent_id": row["claimed_by"]})
    for agent_id in agents:
        run(OPERATOR, "agent_delete", {"agent_id": agent_id})
    return (
        f"The team left the hub: its agents are deleted. What stays is history: the project {project_root}, with the "
        "messages, handoffs, artifacts and events that you saw. `nexus prune` deletes what may go, in time."
    )


def new_key(agent_id: str) -> str:
    """Return a new key for a member of the team, on a hub that is not the demo's own. Raises DemoFailure."""
    made = run(OPERATOR, "agent_create", {"agent_id": agent_id})
    if not made["ok"]:  # it exists from a demo that was killed
        made = run(OPERATOR, "agent_key_issue", {"agent_id": agent_id})
    if not made["ok"]:
        raise DemoFailure(f"No key for {agent_id}: {made['error']['message']}")
    key: str = made["data"]["api_key"]
    return key
