"""Two hubs with homes of their own on one PostgreSQL database: either will do, together they do each thing once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from websockets.sync.client import connect

from tests.acceptance.hub import START_SECONDS, Hub, serving
from tests.acceptance.pool import until
from tests.acceptance.processes import nexus
from tests.acceptance.test_crash import follow as read_stream
from tests.hooks.test_webhooks import Receiver, receiver
from tests.postgres import Cluster, database_of

__all__ = ["receiver"]

HANDOFFS = 10
FLAGS = ("--reaper", "--max-wait-timeout-seconds", "120", "--handoff-lease-ttl-seconds", "1")


@pytest.fixture(scope="module")
def migrated(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose database is an empty store."""
    home = tmp_path_factory.mktemp("migrated")
    made = nexus(home, "operators", "list", NEXUS_DATABASE_URL=database_of(home, cluster.url))
    assert made.stdout == "none\n"
    return home


@pytest.fixture
def database(cluster: Cluster, migrated: Path, tmp_path: Path) -> str:
    """The URL of a database of this test's own."""
    return database_of(tmp_path, cluster.url, like=migrated)


@pytest.fixture
def hubs(database: str, tmp_path: Path) -> Iterator[tuple[Hub, Hub]]:
    """Two hubs on it that reap."""
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(serving(tmp_path / name, *FLAGS, database=database)) for name in ("one", "two")
        )
        yield first, second


def envelope(hub: Hub, name: str, **arguments: Any) -> dict[str, Any]:
    """The answer of an operation over REST, whatever it is."""
    answer = httpx.post(f"{hub.url}/api/v1/operations/{name}", json=arguments, timeout=START_SECONDS)
    found: dict[str, Any] = answer.json()
    return found


def mail(project: str, to: str, subject: str) -> dict[str, Any]:
    target = {"strategy": "direct", "agent_id": to}
    return {"project_root": project, "from_agent_id": "ana", "subject": subject, "body": "b", "target": target}


def test_what_waits_at_one_hub_sees_what_the_other_commits(hubs: tuple[Hub, Hub], project: str) -> None:
    here, there = hubs
    here.call("agent_register", agent_id="ana")
    key = here.key("bob")
    assert httpx.get(f"{there.url}/api/v1/agents", headers={"x-api-key": key}).is_success, "a key holds at either"
    cursor = here.call("message_create", **mail(project, "bob", "before"))["event_id"]
    events = {"project_root": project, "agent_id": "bob", "stream": "workspace", "cursor": cursor}
    streamed: list[tuple[int, str]] = []
    with (
        connect(f"ws://{there.authority}/ws/events/?cursor={cursor}&type=message.created") as socket,
        ThreadPoolExecutor(2) as pool,
    ):
        waiting = pool.submit(there.call, "event_wait", **events, timeout_seconds=30)
        reading = pool.submit(read_stream, there, cursor, streamed, 1)
        until(lambda: there.parked() == 3)
        sent = here.call("message_create", **mail(project, "bob", "after"))["message_id"]
        assert [event["payload"]["message_id"] for event in waiting.result()["events"]] == [sent]
        reading.result()
        assert [message for _, message in streamed] == [sent]
        assert json.loads(socket.recv(timeout=START_SECONDS))["event"]["payload"]["message_id"] == sent
    assert [message["message_id"] for message in there.call("inbox_pull", agent_id="bob")["messages"]][-1] == sent


def test_webhooks_and_the_reaper_act_once_for_both_hubs(
    hubs: tuple[Hub, Hub], project: str, database: str, receiver: Receiver
) -> None:
    for name in ("ana", "bob"):
        hubs[0].call("agent_register", agent_id=name)
    hubs[0].call("webhook_add", url=receiver.url, types=["message.created"], allow_private=True)
    offer = {"project_root": project, "from_agent_id": "ana", "target": {"strategy": "broadcast"}}
    offered = [hubs[0].call("handoff_create", **offer, visibility="public")["handoff_id"] for _ in range(HANDOFFS)]

    def claim(hub: Hub, agent_id: str) -> list[str]:
        race = {"project_root": project, "agent_id": agent_id}
        return [one for one in offered if envelope(hub, "handoff_claim", handoff_id=one, **race)["ok"]]

    with ThreadPoolExecutor(4) as pool:
        claims = list(pool.map(claim, hubs, ("ana", "bob")))
        sent = list(pool.map(lambda n: hubs[n % 2].call("message_create", **mail(project, "bob", "s")), range(40)))
    assert set(claims[0] + claims[1]) == set(offered)

    def steps(type: str) -> Counter[str]:
        with psycopg.connect(database) as store:
            rows = store.execute("SELECT handoff_id FROM events WHERE type = %s", [type]).fetchall()
        return Counter(row[0] for row in rows)

    # One that lapsed while the others were claimed may be claimed again: each lease is won once, and ends once.
    until(lambda: steps("handoff.expired").keys() == set(offered) and len(receiver.got) >= len(sent))
    until(lambda: steps("handoff.expired") == steps("handoff.claimed"))
    delivered = Counter(body["data"]["payload"]["message_id"] for _, body in receiver.got)
    assert delivered == Counter(one["message_id"] for one in sent)


def test_a_server_that_restarts_costs_no_more_than_the_calls_meanwhile(
    hubs: tuple[Hub, Hub], project: str, cluster: Cluster
) -> None:
    here, there = hubs
    for name in ("ana", "bob"):
        here.call("agent_register", agent_id=name)
    cursor = here.call("message_create", **mail(project, "bob", "before"))["event_id"]
    streamed: list[tuple[int, str]] = []
    wait = {"project_root": project, "agent_id": "bob", "stream": "workspace", "cursor": cursor}

    def refused(hub: Hub) -> dict[str, Any]:
        error: dict[str, Any] = envelope(hub, "message_create", **mail(project, "bob", "lost"))["error"]
        return error

    def ready(hub: Hub) -> int:
        return httpx.get(f"{hub.url}/readyz").status_code

    with ThreadPoolExecutor(6) as pool:
        waiting = pool.submit(envelope, there, "event_wait", **wait, timeout_seconds=100)
        reading = pool.submit(read_stream, there, cursor, streamed, 1)
        until(lambda: there.parked() == 2)
        cluster.stop()
        try:
            calls, looks = pool.map(refused, hubs), pool.map(ready, hubs)
            for error in calls:
                assert (error["code"], error["details"]["retryable"]) == ("DB_ERROR", True)
            assert list(looks) == [503, 503]
        finally:
            cluster.start()
        until(lambda: envelope(here, "message_create", **mail(project, "bob", "after"))["ok"])
        assert [event["payload"]["subject"] for event in waiting.result()["data"]["events"]] == ["after"]
        reading.result()
    assert len(streamed) == 1
    until(lambda: httpx.get(f"{there.url}/readyz").is_success)
    assert [message["subject"] for message in there.call("inbox_pull", agent_id="bob")["messages"]] == [
        "before",
        "after",
    ]
