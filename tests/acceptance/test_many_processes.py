"""Ten agents, each with a process of its own, on one store: everything at once, then with processes killed."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from tests import warm
from tests.acceptance.log import opened
from tests.acceptance.processes import client
from tests.conftest import Furnish
from tests.postgres import SERVER

AGENTS, KILLS = 10, 6
MESSAGES = [20, pytest.param(200, marks=pytest.mark.long)]  # of each agent


@dataclass
class Record:
    """What clients were told: only answered calls count."""

    sent: list[str] = field(default_factory=list)  # message ids, as told to senders
    won: list[str] = field(default_factory=list)  # handoff ids, as told to winners
    errors: list[dict[str, Any]] = field(default_factory=list)


async def call(agent: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """A tool's envelope, the same call sent again for as long as the store says that this helps."""
    for _ in range(10):
        envelope: dict[str, Any] = (await agent.call_tool(name, arguments)).structured_content
        if envelope["ok"] or not envelope["error"].get("details", {}).get("retryable"):
            return envelope
        await asyncio.sleep(0.5)
    return envelope


async def send_and_race(agent: Client, number: int, project: str, handoffs: list[str], record: Record) -> None:
    """Four messages to the next agent and a try for a handoff, for each of the handoffs."""
    me, peer = f"agent-{number}", f"agent-{(number + 1) % AGENTS}"
    for count in range(4 * len(handoffs)):
        letter = {"project_root": project, "from_agent_id": me, "subject": f"{count}", "body": "b"}
        sent = await call(agent, "message_create", **letter, target={"strategy": "direct", "agent_id": peer})
        if sent["ok"]:
            record.sent.append(sent["data"]["message_id"])
        else:
            record.errors.append(sent["error"])
        if count % 4 == 0:
            handoff_id = handoffs[count // 4]
            claim = await call(agent, "handoff_claim", project_root=project, handoff_id=handoff_id, agent_id=me)
            if claim["ok"]:
                record.won.append(handoff_id)
            elif claim["error"]["code"] != "HANDOFF_ALREADY_CLAIMED":
                record.errors.append(claim["error"])


async def receive_all(agent: Client, number: int) -> list[str]:
    """Pull and acknowledge until the inbox is empty; the message ids, as often as they came."""
    me, received = f"agent-{number}", []
    while messages := (await call(agent, "inbox_pull", agent_id=me, limit=200))["data"]["messages"]:
        ids = [message["message_id"] for message in messages]
        acked = await call(agent, "inbox_ack", agent_id=me, message_ids=ids)
        assert acked["data"]["acknowledged"] == len(ids)
        received += ids
    return received


async def prepare(agent: Client, project: str, handoffs: int) -> list[str]:
    """Register everybody and offer so many handoffs; their ids."""
    for number in range(AGENTS):
        assert (await call(agent, "agent_register", agent_id=f"agent-{number}"))["ok"]
    offer = {"project_root": project, "from_agent_id": "boss", "target": {"strategy": "broadcast"}}
    made = [await call(agent, "handoff_create", **offer, visibility="public") for _ in range(handoffs)]
    return [handoff["data"]["handoff_id"] for handoff in made]


def check_store(home: Path) -> None:
    """The store is sound, a file's log has no gap, every message has its delivery and its event, claims are single."""
    with opened(home) as store:

        def one(sql: str) -> Any:
            return store.execute(sql).fetchone()[0]

        if not SERVER:  # a server looks after its files itself, and a transaction that is undone burns its ids there
            assert one("PRAGMA integrity_check") == "ok"
            assert store.execute("PRAGMA foreign_key_check").fetchall() == []
            assert one("SELECT count(*) = max(event_id) AND min(event_id) = 1 FROM events")
        lonely = "message_id NOT IN (SELECT message_id FROM message_deliveries)"
        assert one(f"SELECT count(*) FROM messages WHERE {lonely}") == 0
        assert one("SELECT count(*) FROM messages") == one("SELECT count(*) FROM events WHERE type = 'message.created'")
        claims = store.execute("SELECT handoff_id, count(*) FROM events WHERE type = 'handoff.claimed' GROUP BY 1")
        assert all(count == 1 for _, count in claims)
        claimed = one("SELECT count(*) FROM handoffs WHERE status = 'CLAIMED'")
        assert claimed == one("SELECT count(DISTINCT handoff_id) FROM events WHERE type = 'handoff.claimed'")


@pytest.mark.parametrize("messages", MESSAGES)
async def test_ten_processes_lose_nothing_and_win_nothing_twice(
    tmp_path: Path, project: str, furnish: Furnish, messages: int
) -> None:
    home, record = furnish(tmp_path / "home"), Record()
    async with client(home) as first:
        handoffs = await prepare(first, project, messages // 4)

    async def live(number: int) -> None:
        async with client(home) as agent:
            await send_and_race(agent, number, project, handoffs, record)

    await asyncio.gather(*(live(number) for number in range(AGENTS)))
    assert record.errors == []
    assert len(record.sent) == AGENTS * messages
    assert sorted(record.won) == sorted(handoffs)
    async with client(home) as reader:
        received = [message for number in range(AGENTS) for message in await receive_all(reader, number)]
    assert sorted(received) == sorted(record.sent)
    check_store(home)


@pytest.mark.parametrize("messages", MESSAGES)
async def test_a_killed_process_loses_nothing_that_it_answered(
    tmp_path: Path, project: str, furnish: Furnish, messages: int
) -> None:
    home, record = furnish(tmp_path / "home"), Record()
    async with client(home) as first:
        handoffs = await prepare(first, project, messages // 4)

    over = asyncio.Event()
    servers: list[warm.Process] = []

    async def lives(number: int) -> bool:
        try:
            async with client(home, started=servers) as agent:
                await send_and_race(agent, number, project, handoffs, record)
                await over.wait()  # none is done before the killing is
                await agent.call_tool("nexus_info", {})
        except Exception:  # its server was killed under it
            return False
        return True

    agents = [asyncio.create_task(lives(number)) for number in range(AGENTS)]
    await kill_some(servers, record)
    over.set()
    assert sum(await asyncio.gather(*agents)) == AGENTS - KILLS
    assert record.errors == []
    async with client(home) as reader:
        received = [message for number in range(AGENTS) for message in await receive_all(reader, number)]
    assert set(record.sent) <= set(received), "what was answered is there"
    assert len(received) == len(set(received))
    assert len(record.won) == len(set(record.won))
    check_store(home)


async def kill_some(servers: list[warm.Process], record: Record) -> None:
    """SIGKILL some servers while all of them are at work."""
    while len(record.sent) < AGENTS * 5:
        await asyncio.sleep(0.05)
    assert len(servers) == AGENTS
    for server in servers[:KILLS]:
        server.kill()
        await asyncio.sleep(random.uniform(0.02, 0.2))
