"""What one key or one round of upkeep costs a real hub, and that another key's calls go on meanwhile."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fairness import SLOW_GLOB
from tests import warm
from tests.acceptance.hub import START_SECONDS, Hub
from tests.acceptance.processes import environment

FLOOD = 400
STRANGERS = 16
CALLS = 10  # of the other key, beside something large
FOREIGN_TASKS = 5_000  # some 4 MB
OLD_EVENTS = 25_000
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(hub: Hub) -> Stream:
    return await asyncio.open_connection(*hub.address)


async def call(hub: Hub, stream: Stream, key: str, name: str, toolset: str = "", /, **arguments: Any) -> int:
    """One call over a connection of its own, of the toolset at that path; the status of its answer."""
    body = json.dumps(arguments).encode()
    head = (
        f"POST /api/v1/{toolset}operations/{name} HTTP/1.1\r\nHost: {hub.authority}\r\nx-api-key: {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return await answered(stream, head.encode() + body)


async def answered(stream: Stream, request: bytes) -> int:
    """The status of the answer to the only request of a connection."""
    reader, writer = stream
    writer.write(request)
    async with asyncio.timeout(START_SECONDS):
        answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])


@pytest.fixture(scope="module")
def keys(hub: Hub) -> tuple[str, str]:
    """Of who floods and of another; both were seen by the hub before."""

    async def seen(key: str, agent_id: str) -> None:
        assert await call(hub, await connected(hub), key, "inbox_peek", agent_id=agent_id) == 200

    made = hub.key("flooding"), hub.key("other")
    for key, agent_id in zip(made, ("flooding", "other"), strict=True):
        asyncio.run(seen(key, agent_id))
    return made


def test_a_call_is_not_behind_the_many_of_another_key(hub: Hub, keys: tuple[str, str]) -> None:
    async def play() -> int:
        done: list[str] = []

        async def one(stream: Stream, key: str, agent_id: str) -> None:
            assert await call(hub, stream, key, "inbox_peek", agent_id=agent_id) == 200
            done.append(agent_id)

        streams = [await connected(hub) for _ in range(FLOOD + 1)]
        flood = [asyncio.ensure_future(one(stream, keys[0], "flooding")) for stream in streams[1:]]
        await asyncio.sleep(0)  # each is sent
        await one(streams[0], keys[1], "other")
        await asyncio.gather(*flood)
        return done.index("other")

    assert asyncio.run(play()) < FLOOD // 4


def test_parked_waits_leave_their_own_keys_calls_a_turn(hub: Hub, keys: tuple[str, str], tmp_path: Path) -> None:
    wait = {
        "project_root": str(tmp_path),
        "agent_id": "flooding",
        "stream": "workspace",
        "filters": {"type": "message.created"},
    }

    async def play() -> Counter[int]:
        streams = [await connected(hub) for _ in range(101)]
        waits = [
            asyncio.ensure_future(call(hub, stream, keys[0], "event_wait", timeout_seconds=30, **wait))
            for stream in streams[1:]
        ]
        while await asyncio.to_thread(hub.parked) < 100:
            assert not any(each.done() for each in waits)
        assert await call(hub, streams[0], keys[0], "inbox_peek", agent_id="flooding") == 200
        assert not any(each.done() for each in waits)
        await asyncio.to_thread(
            hub.call,
            "message_create",
            project_root=str(tmp_path),
            from_agent_id="other",
            subject="s",
            body="b",
            target={"strategy": "direct", "agent_id": "flooding"},
        )
        return Counter(await asyncio.gather(*waits))

    assert asyncio.run(play()) == {200: 100}


async def log_in(hub: Hub, stranger: int) -> int:
    """A wrong password, from an address of loopback of its own; the status of the answer."""
    stream = await asyncio.open_connection(*hub.address, local_addr=(f"127.0.1.{stranger}", 0))
    token = "x" * 32
    body = f"username=ada&password=wrong&csrfmiddlewaretoken={token}"
    head = (
        f"POST /admin/login/ HTTP/1.1\r\nHost: {hub.authority}\r\nCookie: csrftoken={token}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return await answered(stream, (head + body).encode())


@pytest.mark.skipif(sys.platform != "linux", reason="loopback has one address there")
def test_strangers_with_wrong_passwords_hold_up_no_agent(hub: Hub, keys: tuple[str, str]) -> None:
    async def play() -> int:
        logins = [asyncio.ensure_future(log_in(hub, number + 1)) for number in range(STRANGERS)]
        await asyncio.wait(logins, return_when=asyncio.FIRST_COMPLETED)  # by then all are before the hub
        for _ in range(5):
            assert await call(hub, await connected(hub), keys[1], "inbox_peek", agent_id="other") == 200
        before = sum(each.done() for each in logins)
        assert set(await asyncio.gather(*logins)) == {200}  # the form again
        return before

    assert asyncio.run(play()) < STRANGERS // 2


def looked_into(hub: Hub) -> closing[sqlite3.Connection]:
    """The hub's store, as somebody else opens it."""
    return closing(sqlite3.connect(hub.home / "nexus.db", timeout=START_SECONDS, isolation_level=None))


async def send(hub: Hub, key: str, project: Path) -> None:
    """A read and a write of the other key's."""
    assert await call(hub, await connected(hub), key, "inbox_peek", agent_id="other") == 200
    letter = {"project_root": str(project), "from_agent_id": "other", "subject": "s", "body": "b"}
    target = {"strategy": "direct", "agent_id": "other"}
    assert await call(hub, await connected(hub), key, "message_create", **letter, target=target) == 200


def test_slow_globs_that_wait_hold_up_nobody(hub: Hub, keys: tuple[str, str], tmp_path: Path) -> None:
    here = {"project_root": str(tmp_path)}
    far = ["/".join(["a" * 40 + "b"] * 5) + f"/{number}" for number in range(50)]
    hub.key("holding")
    hub.call("files_reserve", "files/", **here, agent_id="holding", paths=[*far, "/".join(["aaaa"] * 12)])
    wanted = {**here, "agent_id": "flooding", "paths": [SLOW_GLOB], "timeout_seconds": 30}

    async def play() -> None:
        attack = [
            asyncio.ensure_future(call(hub, await connected(hub), keys[0], "files_reserve", "files/", **wanted))
            for _ in range(8)
        ]
        await asyncio.sleep(0)  # each is sent
        for _ in range(CALLS):
            await send(hub, keys[1], tmp_path)
        assert not any(each.done() for each in attack)
        await asyncio.to_thread(hub.call, "files_release", "files/", **here, agent_id="holding")
        # Where the other's calls had waited for the globs, the time of these were over, and they refused.
        assert set(await asyncio.gather(*attack)) == {200}

    asyncio.run(play())


def test_a_large_foreign_plan_holds_up_nobody(hub: Hub, keys: tuple[str, str], tmp_path: Path) -> None:
    task = {"title": "t", "context": "y" * 600, "status": "pending", "deps": []}
    tasks = [{"id": number, **task} for number in range(1, FOREIGN_TASKS + 1)]
    file = tmp_path / ".nexus/state/tasks.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"goal": "", "decisions": [], "tasks": tasks}))

    async def play(store: sqlite3.Connection) -> int:
        """How many of the other's calls ended while the tasks were applied."""

        def applied() -> int:
            return int(store.execute("SELECT count(*) FROM plan_tasks").fetchone()[0])

        attack = asyncio.ensure_future(
            call(hub, await connected(hub), keys[0], "task_list", "planning/", project_root=str(tmp_path))
        )
        meanwhile = 0
        while not attack.done():
            before = applied()
            await send(hub, keys[1], tmp_path)
            meanwhile += before > 0 and applied() < FOREIGN_TASKS
        assert attack.result() == 200
        return meanwhile

    with looked_into(hub) as store:
        assert asyncio.run(play(store)) >= CALLS


def test_a_round_of_retention_holds_up_nobody(hub: Hub, keys: tuple[str, str], tmp_path: Path) -> None:
    async def play(store: sqlite3.Connection) -> int:
        """How many of the other's calls ended while events were pruned."""

        def left() -> int:
            return int(store.execute("SELECT count(*) FROM events WHERE created_at < '2021-01-01'").fetchone()[0])

        pruning = warm.Process(["prune", "--events-keep-days", "0"], environment(hub.home))
        meanwhile = 0
        while (before := left()) > 0:
            await send(hub, keys[1], tmp_path)
            meanwhile += before < OLD_EVENTS and left() > 0
        assert await asyncio.to_thread(pruning.wait, START_SECONDS) == 0
        return meanwhile

    asyncio.run(send(hub, keys[1], tmp_path))
    with looked_into(hub) as store:
        columns = [row[1] for row in store.execute("PRAGMA table_info(events)")]
        rest = ", ".join(f'"{name}"' for name in columns if name not in ("event_id", "created_at"))
        store.execute(
            f"INSERT INTO events ({rest}, created_at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
            f"WHERE i < {OLD_EVENTS}) SELECT {rest}, '2020-01-01 00:00:00' FROM n, (SELECT * FROM events LIMIT 1)"
        )
        assert asyncio.run(play(store)) >= CALLS
