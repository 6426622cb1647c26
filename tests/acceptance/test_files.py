"""Ten agents, each with a process of its own, that would edit the same files; some are killed while they hold them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from mcp.client.client import Client

from nexus.reservations.patterns import overlap
from tests.acceptance.log import opened
from tests.acceptance.processes import Raw, client
from tests.conftest import Furnish

AGENTS, TURNS, KILLED = 10, 12, 3
GLOBS = [
    "src/",
    "src/*.py",
    "*.py",
    "src/**/test_*",
    "src/app.py",
    "docs/",
    "docs/*.md",
    "**/a*",
    "/src/a?p.py",
    "*.md",
]


async def race(agent: Client, name: str, project: str, told: list[dict[str, Any]]) -> None:
    """Reserve globs that overlap those of others, now alone and now with them, hold them a moment, give them up."""
    luck = random.Random(name)
    mine = {"project_root": project, "agent_id": name}
    for turn in range(TURNS):
        wanted = luck.sample(GLOBS, luck.randint(1, 2))
        asked = {"paths": wanted, "exclusive": luck.random() < 0.8, "all_or_nothing": luck.random() < 0.5}
        wait = luck.choice([0, 0, 0.2])
        result = await agent.call_tool("files_reserve", {**mine, **asked, "timeout_seconds": wait, "seconds": 3600})
        body: dict[str, Any] = result.structured_content
        assert body["ok"] or body["error"]["code"] == "FILES_RESERVED", body
        told += body["data"]["reservations"] if body["ok"] else []
        if body["ok"] and turn < TURNS - 1:
            assert (await agent.call_tool("files_release", mine)).structured_content["ok"]


def die(home: Path, name: str, project: str, told: list[dict[str, Any]]) -> None:
    """The same in a process that is killed with most of what it was asked still before it."""
    luck = random.Random(name)
    mine = {"project_root": project, "agent_id": name}
    with Raw(home, "--toolsets", "files") as server:
        server.greet()
        for turn in range(1, 100):
            wanted = {"paths": luck.sample(GLOBS, 2), "all_or_nothing": luck.random() < 0.5, "seconds": 3600}
            name, more = ("files_reserve", wanted) if turn % 2 else ("files_release", {})
            asked = {"method": "tools/call", "params": {"name": name, "arguments": {**mine, **more}}}
            server.write(json.dumps({"jsonrpc": "2.0", "id": turn, **asked}).encode())
        for _ in range(luck.randint(1, 30)):
            body = server.read()["result"]["structuredContent"]
            told += body["data"].get("reservations", []) if body["ok"] else []


def changes(home: Path) -> Iterator[tuple[str, str, list[str], bool]]:
    """What happened to reservations, in the order of the log: what, to whom, of which patterns, and how."""
    with opened(home) as store:
        rows = store.execute("SELECT type, actor_agent_id, payload FROM events WHERE stream = 'file' ORDER BY event_id")
        for type, actor, payload in rows.fetchall():
            told = json.loads(payload) if isinstance(payload, str) else payload
            yield type, told.get("holder") or actor, told["patterns"], told.get("exclusive", False)


async def test_ten_processes_never_hold_one_file_twice_although_some_are_killed(
    tmp_path: Path, project: str, furnish: Furnish
) -> None:
    home = furnish(tmp_path / "home")
    told: list[dict[str, Any]] = []

    async def live(number: int) -> None:
        async with client(home, "--toolsets", "files") as agent:
            await race(agent, f"agent-{number}", project, told)

    await asyncio.gather(
        *(live(number) for number in range(AGENTS - KILLED)),
        *(asyncio.to_thread(die, home, f"killed-{number}", project, told) for number in range(KILLED)),
    )

    held: list[tuple[str, str, bool]] = []  # whose, of which pattern, exclusive
    for type, who, patterns, exclusive in changes(home):
        if type == "file.reserved":
            held += [(who, pattern, exclusive) for pattern in patterns]
            for one, other in combinations(held, 2):
                alone = one[0] != other[0] and (one[2] or other[2])
                assert not (alone and overlap(one[1], other[1])), (one, other)
        elif type == "file.released":
            held = [row for row in held if row[0] != who]
    with opened(home) as store:
        rows = store.execute("SELECT agent_id, pattern FROM file_reservations WHERE released_at IS NULL").fetchall()
        assert sorted(map(tuple, rows)) == sorted((who, pattern) for who, pattern, _ in held)
        known = {row[0] for row in store.execute("SELECT reservation_id FROM file_reservations").fetchall()}
    assert {row["reservation_id"] for row in told} <= known, "what was answered is there"
    assert told
