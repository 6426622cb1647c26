"""The team of the demo (a planner, two workers that race, a reviewer), and its hub over a throwaway home."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from nexus.core.instance import running
from nexus.core.processes import INHERIT, NEUTRAL, STDOUT, own_environment, python, start

PLANNER, REVIEWER, WORKERS = "demo-planner", "demo-reviewer", ("demo-worker-1", "demo-worker-2")
SKILL = "build"
PARTS = ("parser", "storage", "search", "importer", "exporter", "scheduler", "cache", "report")
LOOK_SECONDS = 0.05  # between two looks whether the hub answers
CALL_SECONDS = 60
Data = dict[str, Any]


class DemoFailure(Exception):
    """An unexpected answer, with which the demo cannot continue."""


@contextmanager
def serving(home: Path) -> Iterator[str]:
    """Run a hub over a throwaway home, on a free port, and end it afterwards in any case; yield its URL.

    Raises DemoFailure where it does not start.
    """
    command = python("nexus_site", "serve", "--port", "0", "--home", str(home))
    env, log = own_environment(settings=False), home / "hub.log"
    with log.open("wb") as written, start(command, cwd=NEUTRAL, env=env, stdout=written, stderr=STDOUT) as program:
        while not (holder := running(home)):
            if program.process.poll() is not None:
                said = log.read_text(errors="replace").strip().rpartition("\n")[2]
                raise DemoFailure(f"its hub did not start: {said or program.process.returncode}")
            time.sleep(LOOK_SECONDS)
        yield holder.url


@contextmanager
def shown(home: Path) -> Iterator[None]:
    """Show what happens in a home within the block: `nexus tail` writes it to our output."""
    command = python("nexus_site", "tail", "--pretty", "--from", "beginning", "--home", str(home))
    env = own_environment(settings=False)
    with start(command, cwd=NEUTRAL, env=env, stdout=INHERIT, stderr=INHERIT) as program:
        yield
        program.process.terminate()


async def play(url: str, project_root: str, rounds: int, pause: float) -> None:
    """Let the team build so many parts on a hub. Raises DemoFailure."""
    async with (
        joined(url, PLANNER, project_root, "planner") as planner,
        joined(url, REVIEWER, project_root, "reviewer") as reviewer,
        joined(url, WORKERS[0], project_root, "worker", SKILL) as one,
        joined(url, WORKERS[1], project_root, "worker", SKILL) as other,
        asyncio.TaskGroup() as others,
    ):
        at_work = [others.create_task(each) for each in (review(reviewer), work(one, pause), work(other, pause))]
        await plan(planner, rounds, pause)
        for task in at_work:
            task.cancel()


async def plan(planner: Agent, rounds: int, pause: float) -> None:
    """Announce the plan, hand out the parts, and collect every outcome."""
    await planner.send("Plan", "We build one part after another; take what is offered to your skill.")
    for number in range(rounds):
        await planner.call(
            "handoff_create",
            project_root=planner.project_root,
            from_agent_id=planner.agent_id,
            target={"strategy": "capability", "capability": SKILL},
            visibility="public",
            payload={"part": PARTS[number % len(PARTS)], "number": number},
        )
        await asyncio.sleep(pause)
    outcomes = 0
    while outcomes < rounds:
        outcomes += sum("was completed" in message["subject"] for message in await planner.receive())
        await asyncio.sleep(pause / 2)
    await planner.send("Done", f"All {rounds} parts are in. Thank you.")


async def work(worker: Agent, pause: float) -> None:
    """Race for the offered handoffs; the winner builds the part, asks for a review and completes it."""
    me = {"project_root": worker.project_root, "agent_id": worker.agent_id}
    while True:
        offered = await worker.call("handoff_list_available", **me, limit=1, timeout_seconds=1)
        for row in offered["handoffs"]:
            handoff = {**me, "handoff_id": row["handoff_id"], **worker.credentials}
            claim = await worker.attempt("handoff_claim", **handoff)
            if not claim["ok"]:  # the other one was quicker
                continue
            await asyncio.sleep(pause * random.uniform(1, 3))  # noqa: S311  # the work
            artifact = await worker.call(
                "artifact_put",
                project_root=worker.project_root,
                artifact_type="markdown",
                name="notes",
                content=f"# Built\n\n{claim['data']['payload']}",
            )
            await worker.send("Please review", f"See artifact {artifact['artifact_id']}.", to=REVIEWER)
            await worker.call("handoff_complete", **handoff, result={"artifact": artifact["artifact_id"]})
        await worker.receive()


async def review(reviewer: Agent) -> None:
    """Wait for mail by subscription, without polling, and answer each request."""
    async with reviewer.client.listen(resource_subscriptions=[f"nexus://inbox/{reviewer.agent_id}"]) as mail:
        async for _ in mail:
            for message in await reviewer.receive():
                if message["subject"] == "Please review":
                    await reviewer.send("Reviewed", "Looks good.", to=message["from_agent_id"])


@dataclass
class Agent:
    """An agent in its project, with the credentials of its session."""

    agent_id: str
    project_root: str
    client: Client
    credentials: dict[str, str] = field(default_factory=dict)

    async def attempt(self, tool: str, **arguments: Any) -> Data:
        """Call a tool; return the envelope, also of an error."""
        answer = await self.client.call_tool(tool, arguments)
        envelope: Data = answer.structured_content
        return envelope

    async def call(self, tool: str, **arguments: Any) -> Data:
        """Call a tool that must succeed; return its data. Raises DemoFailure."""
        envelope = await self.attempt(tool, **arguments)
        if not envelope["ok"]:
            raise DemoFailure(f"{self.agent_id}: {tool} answered {envelope['error']}")
        data: Data = envelope["data"]
        return data

    async def send(self, subject: str, body: str, to: str | None = None) -> None:
        """Send a message to one agent, or to everybody present."""
        letter: Data = {"project_root": self.project_root, "from_agent_id": self.agent_id, "subject": subject}
        target = {"target": {"strategy": "direct", "agent_id": to}} if to else {}
        await self.call("message_create", **letter, body=body, **target)

    async def receive(self) -> list[Data]:
        """Pull the mail and acknowledge it."""
        me = {"agent_id": self.agent_id, **self.credentials}
        messages: list[Data] = (await self.call("inbox_pull", **me))["messages"]
        if messages:
            await self.call("inbox_ack", **me, message_ids=[message["message_id"] for message in messages])
        return messages


@asynccontextmanager
async def joined(url: str, agent_id: str, project_root: str, role: str, *capabilities: str) -> AsyncIterator[Agent]:
    """Create an agent on the demo's hub, as its operator; connect with the agent's key, and let it join."""
    async with httpx2.AsyncClient(timeout=CALL_SECONDS, trust_env=False) as operator:  # no proxy leads to this machine
        made = await operator.post(f"{url}/api/v1/coordination/operations/agent_create", json={"agent_id": agent_id})
    headers = {"Authorization": f"Bearer {made.json()['data']['api_key']}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=CALL_SECONDS, trust_env=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        agent = Agent(agent_id, project_root, client)
        session = await agent.call(
            "join", agent_id=agent_id, project_root=project_root, role=role, capabilities=list(capabilities)
        )
        agent.credentials = {name: session[name] for name in ("session_id", "session_secret")}
        yield agent
        await agent.call("session_close", session_id=session["session_id"])
