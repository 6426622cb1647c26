"""The members of the team: a planner, two workers that race, a reviewer."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from nexus_site.demo.agent import Agent, DemoFailure

SKILL = "build"
PLANNER, REVIEWER, WORKERS = "demo-planner", "demo-reviewer", ("demo-worker-1", "demo-worker-2")
PARTS = ("parser", "storage", "search", "importer", "exporter", "scheduler", "cache", "report")


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
